"""What a client of any Tinker server needs beside the SDK: what its errors mean, requests without retries,
and saved weights."""
