module caesar_cipher (
    input      [7:0] input_char,
    input      [3:0] key,
    output reg [7:0] output_char
);
  always @(*)
    if (input_char >= "A" && input_char <= "Z") output_char = (input_char - "A" + key) % 26 + "A";
    else if (input_char >= "a" && input_char <= "z") output_char = (input_char - "a" + key) % 26 + "a";
    else output_char = input_char;
endmodule
