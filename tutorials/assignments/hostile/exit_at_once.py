# attack: Ends the process with status 0 while the file is read.
import os

os._exit(0)
