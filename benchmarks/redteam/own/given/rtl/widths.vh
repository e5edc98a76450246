`ifndef WIDTHS_VH
`define WIDTHS_VH
`define BITS 8
`endif
