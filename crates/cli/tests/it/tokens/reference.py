"""The reference implementation of SciTokens, as the tests ask it.

    reference.py JOBS

JOBS is a file with a JSON array. Each job gets a line of JSON on standard output:

  {"sign": CLAIMS, "key": PEM, "kid": ID, "issuer": URL}        {"token": TOKEN}
  {"judge": TOKEN, "key": PEM, "issuer": URL, "audience": AUD, "may": [[AUTHZ, PATH], ...]}
                                                                {"may": [true, ...]} or {"refused": WHY}
"""

import json
import sys

import scitokens
from cryptography.hazmat.primitives.serialization import load_pem_private_key


def sign(job):
    key = load_pem_private_key(job["key"].encode(), password=None)
    token = scitokens.SciToken(key=key, key_id=job["kid"])
    token.update_claims(job["sign"])
    return {"token": token.serialize(issuer=job["issuer"]).decode()}


def judge(job):
    try:
        token = scitokens.SciToken.deserialize(job["judge"], public_key=job["key"].encode())
        enforcer = scitokens.Enforcer(job["issuer"], job["audience"])
        # Claims that it looks at in SciTokens 1 only, where it wants all of them to be looked at.
        for claim in ("wlcg.ver", "wlcg.groups"):
            enforcer.add_validator(claim, lambda value: True)
        return {"may": [enforcer.test(token, authz, path) for authz, path in job["may"]]}
    except Exception as cause:  # whatever it is, it is why the token is refused
        return {"refused": f"{type(cause).__name__}: {cause}"}


for job in json.load(open(sys.argv[1])):
    print(json.dumps(sign(job) if "sign" in job else judge(job)))
