"""Every driver, once per way in which it works. A new driver adds its module here and is tried in every way."""

from tests.connectors import (
    cases_ceph,
    cases_fibre_channel,
    cases_iscsi,
    cases_local,
    cases_nvmeof,
    cases_shares,
    cases_userspace,
    cases_vendors,
)
from tests.connectors.harness.case import Case

CASES: list[Case] = [
    *cases_local.CASES,
    *cases_shares.CASES,
    *cases_iscsi.CASES,
    *cases_fibre_channel.CASES,
    *cases_vendors.CASES,
    *cases_nvmeof.CASES,
    *cases_userspace.CASES,
    *cases_ceph.CASES,
]
