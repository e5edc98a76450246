// The bench: it ends by $finish, and reports what is wrong by $error.
module tb_saturating_adder;
  logic [7:0] a, b, sum;
  int expected;

  saturating_adder dut (.a(a), .b(b), .sum(sum));

  initial begin
    for (int i = 0; i < 300; i++) begin
      a = $urandom;
      b = i < 16 ? 8'hff - i : $urandom;
      expected = a + b > 255 ? 255 : a + b;
      #1 assert (sum === expected[7:0]) else $error("%0d + %0d is %0d", a, b, sum);
    end
    $finish;
  end
endmodule
