module alu_seq #(
    parameter [7:0] p_key = 8'hAA
) (
    input            i_clk,
    input            i_rst_b,
    input      [3:0] i_operand_a,
    input      [3:0] i_operand_b,
    input      [2:0] i_opcode,
    input      [7:0] i_key_in,
    output reg [7:0] o_result
);
  always @(posedge i_clk or negedge i_rst_b)
    if (!i_rst_b) o_result <= 0;
    else if (i_key_in != p_key) o_result <= 0;
    else
      case (i_opcode)
        3'd0: o_result <= i_operand_a + i_operand_b;
        3'd1: o_result <= i_operand_a - i_operand_b;
        3'd2: o_result <= i_operand_a * i_operand_b;
        3'd3: o_result <= i_operand_a & i_operand_b;
        3'd4: o_result <= i_operand_a | i_operand_b;
        3'd5: o_result <= {4'd0, ~i_operand_a};
        3'd6: o_result <= i_operand_a ^ i_operand_b;
        3'd7: o_result <= {4'd0, ~(i_operand_a ^ i_operand_b)};
      endcase
endmodule
