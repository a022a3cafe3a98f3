"""Programs that build files of this repository: run by hand, not part of the package."""
