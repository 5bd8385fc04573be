"""TLS: the settings of a connection, and explanations of failed connections for error messages."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

from holdfast._net.silent_socket import silent

_CERTIFICATE = {
    9: "the server's certificate is not valid yet: are the clocks of both machines right?",
    10: "the server's certificate has expired: renew it on the server",
    18: "the server's certificate is self-signed, and not trusted here: set ssl_ca_certs to it, or to the CA that signs it",
    62: "the server's certificate is not for host {host!r}: use a host name in the certificate, or issue one for this host",
}
"""Explanation of each certificate error, by OpenSSL's error number (page "X509_STORE_CTX_get_error")."""

_UNKNOWN_CA = "the server's certificate is signed by a CA that is not trusted here: set ssl_ca_certs to that CA's certificate"
_CERTIFICATE |= dict.fromkeys((2, 19, 20, 21), _UNKNOWN_CA) | {64: _CERTIFICATE[62]}

_ALERTS = {
    "CERTIFICATE_REQUIRED": "the server requires a client certificate: set ssl_certfile and ssl_keyfile",
    "HANDSHAKE_FAILURE": "the server refused the handshake: does it require a client certificate (ssl_certfile, ssl_keyfile)?",
    "UNKNOWN_CA": "the server does not trust the CA of our client certificate (ssl_certfile)",
    "CERTIFICATE_EXPIRED": "our client certificate (ssl_certfile) has expired, as the server reports",
    "BAD_CERTIFICATE": "the server refuses our client certificate (ssl_certfile)",
    "PROTOCOL_VERSION": "the server has no version of TLS that is accepted here",
    "WRONG_VERSION_NUMBER": "the server does not use TLS on this port: is it a redis:// server?",
}
"""Explanation of each TLS alert, by a part of OpenSSL's name of the alert."""


def unverified(reqs: object) -> bool:
    return reqs in {"none", None, ssl.CERT_NONE}


def context(options: Mapping[str, Any]) -> ssl.SSLContext:
    """Return the TLS settings for one connection, from options named ``ssl_...`` as in redis-py.

    The certificate files are read again for each connection, so that renewed certificates are used. Raises OSError if a
    certificate file cannot be read.
    """
    try:
        made = ssl.create_default_context(
            cafile=options.get("ssl_ca_certs"), capath=options.get("ssl_ca_path"), cadata=options.get("ssl_ca_data")
        )
    except OSError as error:
        raise _unusable("ssl_ca_certs", error) from error
    made.sslsocket_class = silent(ssl.SSLSocket)
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
    why = getattr(error, "reason", None) or error.strerror or "there is no certificate in them"
    return OSError(f"the files of {what} cannot be used: {why}")


def why(error: BaseException, host: str) -> str:
    """Return an explanation of ``error``, which made a TLS connection to ``host`` fail."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "TLS: " + _CERTIFICATE.get(error.verify_code, error.verify_message).format(host=host)
    if isinstance(error, ssl.SSLError) and error.reason and "EOF" not in error.reason:
        return "TLS: " + next((text for alert, text in _ALERTS.items() if alert in error.reason), error.reason)
    if isinstance(error, TimeoutError):
        return "no answer within the timeout; a server without TLS never answers a TLS handshake: is it a redis:// server?"
    if isinstance(error, ConnectionResetError | BrokenPipeError | ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return (
            "the server closed the connection during the TLS handshake or just after it: does it require a client certificate, "
            "or another one (ssl_certfile, ssl_keyfile)?"
        )
    return str(error)
