"""Files of answers and verdict records: grade, reproduce and audit them."""
