// Jumps are taken, branches when they go back; offsets are relative to the program counter.
module static_branch_predict (
    input      [31:0] fetch_rdata_i,
    input      [31:0] fetch_pc_i,
    input      [31:0] register_addr_i,
    input             fetch_valid_i,
    output reg        predict_branch_taken_o,
    output     [31:0] predict_branch_pc_o,
    output reg [ 7:0] predict_confidence_o,
    output reg        predict_exception_o,
    output reg [ 2:0] predict_branch_type_o,
    output reg [31:0] predict_branch_offset_o
);
  localparam NONE = 3'b000, JAL = 3'b001, JALR = 3'b010, BRANCH = 3'b011;
  wire [31:0] i = fetch_rdata_i;

  assign predict_branch_pc_o =
      fetch_pc_i + predict_branch_offset_o + (predict_branch_type_o == JALR ? register_addr_i : 32'd0);

  always @(*) begin
    predict_branch_type_o = NONE;
    predict_branch_offset_o = 0;
    if (fetch_valid_i)
      casez (i)
        32'b?????????????????????????_1101111: begin
          predict_branch_type_o = JAL;
          predict_branch_offset_o = {{12{i[31]}}, i[19:12], i[20], i[30:21], 1'b0};
        end
        32'b?????????????????_000_?????_1100111: begin
          predict_branch_type_o = JALR;
          predict_branch_offset_o = {{20{i[31]}}, i[31:20]};
        end
        32'b?????????????????????????_1100011: begin
          predict_branch_type_o = BRANCH;
          predict_branch_offset_o = {{20{i[31]}}, i[7], i[30:25], i[11:8], 1'b0};
        end
        32'b????????????????_?01_???????????_01: begin  // C.J and C.JAL
          predict_branch_type_o = JAL;
          predict_branch_offset_o = {{21{i[12]}}, i[8], i[10:9], i[6], i[7], i[2], i[11], i[5:3], 1'b0};
        end
        32'b????????????????_11?_???????????_01: begin  // C.BEQZ and C.BNEZ
          predict_branch_type_o = BRANCH;
          predict_branch_offset_o = {{24{i[12]}}, i[6:5], i[2], i[11:10], i[4:3], 1'b0};
        end
        default: ;
      endcase
    case (predict_branch_type_o)
      NONE: {predict_branch_taken_o, predict_confidence_o} = {1'b0, 8'd0};
      BRANCH: {predict_branch_taken_o, predict_confidence_o} = predict_branch_offset_o[31] ? {1'b1, 8'd90} : {1'b0, 8'd50};
      default: {predict_branch_taken_o, predict_confidence_o} = {1'b1, 8'd100};
    endcase
    // The two codes of a branch that mean nothing.
    predict_exception_o = fetch_valid_i && i[6:0] == 7'b1100011 && i[14:13] == 2'b01;
  end
endmodule
