"""Reading of Verilog and SystemVerilog: text, tree, interface, clocks, directives, edits."""
