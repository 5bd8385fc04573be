"""TLS: the settings of a connection, and what its failures mean for whoever has to mend them."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

_CERTIFICATE = {
    9: "its certificate is not valid yet: are the clocks of both machines right?",
    10: "its certificate has expired: renew it on the server",
    18: "its certificate is self-signed, and not trusted here: give it, or the CA that should have signed it, as ssl_ca_certs",
    62: "its certificate is for another host than {host!r}: use a name that is in it, or have it issued for this one",
}
"""By OpenSSL's number of the reason, see its page "X509_STORE_CTX_get_error"."""

_UNKNOWN_CA = "its certificate is signed by a CA that is not trusted here: give that CA's certificate as ssl_ca_certs"
_CERTIFICATE |= dict.fromkeys((2, 19, 20, 21), _UNKNOWN_CA) | {64: _CERTIFICATE[62]}

_ALERTS = {
    "CERTIFICATE_REQUIRED": "it wants a client certificate: give ssl_certfile and ssl_keyfile",
    "HANDSHAKE_FAILURE": "it refuses all that we offer; does it want a client certificate (ssl_certfile, ssl_keyfile)?",
    "UNKNOWN_CA": "it does not trust the CA of our client certificate (ssl_certfile)",
    "CERTIFICATE_EXPIRED": "it says that our client certificate (ssl_certfile) has expired",
    "BAD_CERTIFICATE": "it refuses our client certificate (ssl_certfile)",
    "PROTOCOL_VERSION": "it speaks no version of TLS that is accepted here",
    "WRONG_VERSION_NUMBER": "it does not speak TLS on this port: is it a redis:// server?",
}
"""By a part of OpenSSL's name of the reason."""


def unverified(reqs: object) -> bool:
    """Whether this value of ``ssl_cert_reqs`` means that anybody may be the server."""
    return reqs in {"none", None, ssl.CERT_NONE}


def context(options: Mapping[str, Any]) -> ssl.SSLContext:
    """Certificate and host name are verified unless the options (``ssl_...``, named as in redis-py) say otherwise.

    Made anew for each connection, so that renewed certificates count. Raises OSError for files that cannot be used.
    """
    try:
        made = ssl.create_default_context(
            cafile=options.get("ssl_ca_certs"), capath=options.get("ssl_ca_path"), cadata=options.get("ssl_ca_data")
        )
    except OSError as error:
        raise _unusable("ssl_ca_certs", error) from error
    reqs = options.get("ssl_cert_reqs", "required")
    made.check_hostname = bool(options.get("ssl_check_hostname", True)) and not unverified(reqs)
    if unverified(reqs):
        made.verify_mode = ssl.CERT_NONE
    elif reqs in {"optional", ssl.CERT_OPTIONAL}:
        made.verify_mode = ssl.CERT_OPTIONAL
    if options.get("ssl_certfile"):
        try:
            made.load_cert_chain(options["ssl_certfile"], options.get("ssl_keyfile"), options.get("ssl_password"))
        except OSError as error:
            raise _unusable("ssl_certfile and ssl_keyfile", error) from error
    if options.get("ssl_min_version"):
        made.minimum_version = options["ssl_min_version"]
    if options.get("ssl_ciphers"):
        made.set_ciphers(options["ssl_ciphers"])
    return made


def _unusable(what: str, error: OSError) -> OSError:
    why = getattr(error, "reason", None) or error.strerror or "no certificate in it"
    return OSError(f"the files of {what} cannot be used: {why}")


def why(error: BaseException, host: str) -> str:
    """Return the error that tells of a failed TLS connection to ``host``."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "TLS: " + _CERTIFICATE.get(error.verify_code, error.verify_message).format(host=host)
    if isinstance(error, ssl.SSLError) and error.reason and "EOF" not in error.reason:
        return "TLS: " + next((text for alert, text in _ALERTS.items() if alert in error.reason), error.reason)
    if isinstance(error, TimeoutError):
        return "no answer in time; a server that does not speak TLS never answers: is it a redis:// server?"
    if isinstance(error, ConnectionResetError | BrokenPipeError | ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return (
            "it ended the connection in the TLS handshake, or just after it: does it want a client certificate, or another one "
            "(ssl_certfile, ssl_keyfile)?"
        )
    return str(error)
