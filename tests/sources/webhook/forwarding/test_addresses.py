"""Where a forward may connect to: every answer of the one lookup is checked, and the checked address is used."""

from __future__ import annotations

import socket

import httpcore2
import pytest
from tests.sources.webhook.forwarding.destination import destination

from redrive.core.letter import Letter
from redrive.errors import SettingsError
from redrive.sources.webhook.forwarding.forward import Forward
from redrive.sources.webhook.forwarding.network import CheckedNetwork, Refused
from redrive.sources.webhook.forwarding.sender import Forwarder


class Names:
    """A resolver with its own answers, one list a call."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), 0

    def __call__(self, host, port, *_given, **_options):
        self.asked += 1
        found = self.answers[min(self.asked, len(self.answers)) - 1]
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", (each, port, 0, 0))
            if ":" in each
            else (socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port))
            for each in found
        ]


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.0.0.5", "172.16.3.4", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",  # noqa: S104
        "::1", "fe80::1", "fc00::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::",
        "224.0.0.1", "255.255.255.255", "::",
    ],
)  # fmt: skip
async def test_a_name_that_leads_inside_is_refused(address):
    with pytest.raises(Refused, match="allow_private"):
        await CheckedNetwork(resolver=Names([address])).addresses("service.example", 443)


async def test_one_bad_answer_among_good_ones_refuses_the_name():
    with pytest.raises(Refused):
        await CheckedNetwork(resolver=Names(["93.184.215.14", "10.0.0.1"])).addresses("service.example", 443)


async def test_a_public_name_is_looked_up_once_and_the_checked_address_is_connected_to():
    names = Names(["93.184.215.14"], ["127.0.0.1"])  # the second answer is the attacker's
    connected = []

    class Backend:
        async def connect_tcp(self, host, port, *_given):
            connected.append((host, port))

    network = CheckedNetwork(resolver=names)
    network._backend = Backend()
    await network.connect_tcp("service.example", 443)
    assert (connected, names.asked) == ([("93.184.215.14", 443)], 1)


@pytest.mark.parametrize("host", ["127.0.0.1", "10.0.0.5", "::1", "169.254.169.254"])
async def test_an_address_that_the_operator_wrote_is_used_as_it_is(host):
    assert await CheckedNetwork(resolver=Names(["8.8.8.8"])).addresses(host, 80) == [host]


@pytest.mark.parametrize("host", ["2130706433", "0x7f000001", "127.1", "0177.0.0.1", "localhost.", "[::1"])
async def test_a_disguised_address_is_no_literal(host):
    with pytest.raises(Refused):
        await CheckedNetwork(resolver=Names(["127.0.0.1"])).addresses(host, 80)


async def test_localhost_is_loopback_or_nothing():
    assert await CheckedNetwork(resolver=Names(["127.0.0.1", "::1"])).addresses("localhost", 80) == ["127.0.0.1", "::1"]
    with pytest.raises(Refused):
        await CheckedNetwork(resolver=Names(["8.8.8.8"])).addresses("localhost", 80)


async def test_allow_private_names_the_networks_that_a_name_may_lead_into():
    network = CheckedNetwork(["10.1.0.0/16"], resolver=Names(["10.1.2.3"], ["10.2.2.3"]))
    assert await network.addresses("service.internal", 80) == ["10.1.2.3"]
    with pytest.raises(Refused):
        await network.addresses("service.internal", 80)


def test_a_network_that_would_allow_everything_refuses_to_start():
    with pytest.raises(SettingsError, match="cannot allow such a network"):
        Forwarder(Forward(url="http://x.example/", allow_private=["64:ff9b::/96"]), None, lambda: 0)


async def test_a_name_without_an_address_is_an_error_that_can_heal():
    def nothing(*_given, **_options):
        raise socket.gaierror(-2, "Name or service not known")

    with pytest.raises(httpcore2.ConnectError):
        await CheckedNetwork(resolver=nothing).addresses("service.example", 80)


async def test_the_host_header_stays_the_name():
    async with destination() as there:
        network = CheckedNetwork(["127.0.0.0/8"], resolver=Names(["127.0.0.1"]))
        url = f"http://service.internal:{there.port}/x"
        forwarder = Forwarder(Forward(url=url), None, lambda: 0, network=network)
        await forwarder.send(Letter("id", "inbox", "github", b"{}"))
        await forwarder.close()
    assert there.got[0].header("host") == f"service.internal:{there.port}"
