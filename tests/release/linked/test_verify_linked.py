"""Every way to spoil a bundle of persons with visits is found, and named, with mended sums too."""
