"""The encoders of ENCODERS that have sizes of their own: all but `pretrained`, whose sizes are those of a folder."""

from recurcli.encoders import ENCODERS, PRETRAINED

SIZED = {name: entry for name, entry in ENCODERS.items() if name != PRETRAINED}
