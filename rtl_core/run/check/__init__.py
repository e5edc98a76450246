"""What is looked at before a run: by `rtl-distill check` all of it, by a run itself what it has not just done or is about to do."""
