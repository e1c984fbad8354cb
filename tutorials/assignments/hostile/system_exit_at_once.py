# attack: Raises SystemExit(0) while the file is read.
raise SystemExit(0)
