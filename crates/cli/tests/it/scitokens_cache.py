"""Puts keys of a token issuer into the cache of scitokens-cpp: DIRECTORY-OF-CACHES ISSUER KEYS-AS-JSON."""

import json
import os
import sqlite3
import sys
import time

caches, issuer, keys = sys.argv[1:]
directory = os.path.join(caches, "scitokens")
os.makedirs(directory)
# As the library itself makes it.
database = sqlite3.connect(os.path.join(directory, "scitokens_cpp.sqllite"))
database.execute("CREATE TABLE keycache (issuer text UNIQUE PRIMARY KEY NOT NULL, keys text NOT NULL)")
until = int(time.time()) + 86400
entry = {"jwks": json.loads(keys), "expires": until, "next_update": until}
database.execute("INSERT INTO keycache VALUES (?, ?)", (issuer, json.dumps(entry)))
database.commit()
