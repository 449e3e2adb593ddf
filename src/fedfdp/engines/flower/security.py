"""Keys and certificates: an authority for one deployment, the coordinator's certificate, a key for each node.

Private keys can be read by their owner alone, and are never overwritten.
"""

import datetime
import hashlib
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import ssh
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedfdp.core.errors import SettingError

DAYS = 825


@dataclass(frozen=True)
class Certificates:
    """Paths of what TLS needs: the authority that nodes trust, and the coordinator's certificate and key."""

    authority: str
    certificate: str
    key: str


def make_certificates(folder: Path, hosts: list[str], *, days: int = DAYS) -> Certificates:
    """A new authority in `folder`, and a certificate for these names and addresses that it has signed.

    The authority's own key is used once and not kept: nothing else can be signed with it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    authority_key, server_key = new_key(), new_key()
    issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fedfdp deployment")])
    authority = (
        _builder(issuer, issuer, authority_key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key()), critical=False)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(authority_key, hashes.SHA384())
    )
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
    server = (
        _builder(subject, issuer, server_key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_name(host) for host in hosts]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .sign(authority_key, hashes.SHA384())
    )
    made = Certificates(str(folder / "ca.crt"), str(folder / "server.pem"), str(folder / "server.key"))
    private = server_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write_new(Path(made.key), private, 0o600)
    _write_new(Path(made.authority), authority.public_bytes(serialization.Encoding.PEM), 0o644)
    _write_new(Path(made.certificate), server.public_bytes(serialization.Encoding.PEM), 0o644)
    return made


def make_node_key(path: Path) -> Path:
    """A node's key pair in OpenSSH's form: `path` stays with the node, `path`.pub goes to the coordinator."""
    key = new_key()
    path.parent.mkdir(parents=True, exist_ok=True)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    _write_new(path, private, 0o600)
    public = path.with_name(path.name + ".pub")
    _write_new(public, ssh.serialize_ssh_public_key(key.public_key()) + b"\n", 0o644)
    return public


def new_key() -> ec.EllipticCurvePrivateKey:
    """A new private key on the curve that Flower uses."""
    return ec.generate_private_key(ec.SECP384R1())


def key_bytes(key: ec.EllipticCurvePublicKey) -> bytes:
    """A public key as Flower compares it."""
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def read_public_key(path: Path, setting: str = "flower.nodes") -> bytes:
    """The public key in a node's file, as Flower compares it."""
    try:
        content = path.read_bytes()
        load = ssh.load_ssh_public_key if content.startswith(b"ecdsa-") else serialization.load_pem_public_key
        key = load(content)
    except (OSError, ValueError) as error:
        raise SettingError(setting, str(path), f"no public key: {_why(error)}", _KEY_FIX) from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise SettingError(setting, str(path), "an elliptic-curve public key is needed", _KEY_FIX)
    return key_bytes(key)


def read_private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = ssh.load_ssh_private_key(path.read_bytes(), None)
    except (OSError, ValueError) as error:
        raise SettingError("key", str(path), f"no private key: {_why(error)}", _KEY_FIX) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise SettingError("key", str(path), "an elliptic-curve private key is needed", _KEY_FIX)
    return key


def fingerprint(public: bytes) -> str:
    """A short name of a public key, to be compared over the telephone."""
    return hashlib.sha256(public).hexdigest()[:16]


def certificates_in(path: Path, setting: str = "certificate") -> list[x509.Certificate]:
    """All certificates in a file: an authority may stand there beside the one that follows it."""
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "no PEM certificates"
        raise SettingError(setting, str(path), why, "it comes from: fedfdp server --make-certificates") from None


def server_certificate(files: Certificates) -> x509.Certificate:
    """The coordinator's own certificate; a SettingError unless its files belong together and it has not ended."""
    authorities = certificates_in(Path(files.authority), "flower.authority")
    own, *between = certificates_in(Path(files.certificate), "flower.certificate")
    if not _leads(own, between, authorities):
        why = f"not signed by {files.authority}"
        raise SettingError("flower.certificate", files.certificate, why, "use files that were made together")
    form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    if _private_pem(Path(files.key)).public_key().public_bytes(*form) != own.public_key().public_bytes(*form):
        why = f"not the key of {files.certificate}"
        raise SettingError("flower.key", files.key, why, "use files that were made together")
    if (ended := own.not_valid_after_utc) < datetime.datetime.now(datetime.UTC):
        raise SettingError("flower.certificate", files.certificate, f"it ended on {ended:%Y-%m-%d}", RENEW)
    return own


def _private_pem(path: Path) -> PrivateKeyTypes:
    try:
        return serialization.load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:  # TypeError: it wants a password
        why = getattr(error, "strerror", None) or "no private key in PEM without a password"
        fix = "it comes from: fedfdp server --make-certificates"
        raise SettingError("flower.key", str(path), why, fix) from None


def _leads(own: x509.Certificate, between: list[x509.Certificate], authorities: list[x509.Certificate]) -> bool:
    """Whether an authority has signed it, or one in between that stands in the same file."""
    for other in (*between, None):
        if any(_signed(own, authority) for authority in authorities):
            return True
        if other is not None and _signed(own, other):
            own = other
    return False


def _signed(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


RENEW = "make new ones: fedfdp server --make-certificates FOLDER, and give every node its ca.crt"
_KEY_FIX = "make a pair with: fedfdp node --make-key PATH"


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_new(path: Path, content: bytes, mode: int) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise SettingError("key", str(path), "exists already", "give another place, or remove it yourself") from None
    with open(descriptor, "wb") as file:
        file.write(content)
