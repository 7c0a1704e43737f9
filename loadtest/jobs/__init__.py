"""`make bench-jobs`: what a job costs from submission to result, beside the library `arq`."""
