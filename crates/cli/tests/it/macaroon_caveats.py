"""Adds caveats to a macaroon: MACAROON CAVEAT... Prints what it became, and then what it says."""

import sys

from pymacaroons import Macaroon

macaroon = Macaroon.deserialize(sys.argv[1])
for caveat in sys.argv[2:]:
    macaroon.add_first_party_caveat(caveat)
print(macaroon.serialize())
for caveat in macaroon.caveats:
    print(caveat.caveat_id)
