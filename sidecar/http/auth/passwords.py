"""The rules for operators' passwords: their length, and how they are hashed."""

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

#: The shortest password that `waitroom hash-password` accepts, in characters.
MIN_PASSWORD_LENGTH = 8
#: The longest password that a log-in checks, in characters.
MAX_PASSWORD_LENGTH = 1024
#: Hashes with the low-memory parameters of RFC 9106: 64 MiB, and about 50 ms for each hash.
HASHER = PasswordHasher()


def is_hash_of(password_hash: str, password: str) -> bool:
    try:
        return HASHER.verify(password_hash, password)
    except (VerificationError, InvalidHashError):
        return False
