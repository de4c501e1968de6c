"""gridlane's lab: the same experiment for gridlane and for the tools of the field, over emulated or real paths.

Read first: `scenario` (the files), `matrix` (which cells, in which order), `record` (the rows that are kept), `driver`
(how tools, servers and the runner plug in). Everything after a run is computed from rows alone: `analysis`,
`statistics`, `claims`, `figures`, `report`.
"""

__version__ = "0.1.0"
