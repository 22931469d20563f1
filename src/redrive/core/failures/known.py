"""
What the errors of other libraries mean.

Owns the tables that `classify` reads: exception classes by name, so that nothing is
imported for them; HTTP and gRPC statuses; errno; texts. Knows no rule: a policy
decides what happens to a category.
"""

from __future__ import annotations

import errno
from enum import StrEnum

import re2

from redrive.core.letter import Category

_TRANSIENT, _NETWORK, _RESOURCE = Category.TRANSIENT, Category.NETWORK, Category.RESOURCE
_PERMISSION, _VALIDATION, _PERMANENT = Category.PERMISSION, Category.VALIDATION, Category.PERMANENT


class Meaning(StrEnum):
    """What a class of errors stands for, finer than its category, because rules differ in what is terminal."""

    INTEGRITY = "integrity"  # a database refused the data
    INVALID = "invalid"  # a schema library refused the data
    MISUSE = "misuse"  # plain Python errors such as ValueError: often a bug, sometimes bad data
    OTHER = "other"


def _named(category: Category, names: str, meaning: Meaning = Meaning.OTHER) -> dict[str, tuple[Category, Meaning]]:
    """Read "package: Class Class; package: Class" into keys such as "package.Class"."""
    lines = (line.partition(":") for line in names.split(";") if line.strip())
    return {f"{package.strip()}.{name}": (category, meaning) for package, _, rest in lines for name in rest.split()}


# Keys are the first part of the module's name and the class's own name: packages move their insides.
TYPES: dict[str, tuple[Category, Meaning]] = {
    **_named(
        _PERMANENT,
        "sqlalchemy: IntegrityError; psycopg: IntegrityError; psycopg2: IntegrityError; sqlite3: IntegrityError; "
        "asyncpg: IntegrityConstraintViolationError; django: IntegrityError; pymysql: IntegrityError; "
        "MySQLdb: IntegrityError; mysql: IntegrityError; peewee: IntegrityError; tortoise: IntegrityError; "
        "apsw: ConstraintError; oracledb: IntegrityError; pymongo: DuplicateKeyError",
        Meaning.INTEGRITY,
    ),
    **_named(
        _VALIDATION,
        "pydantic: ValidationError; pydantic_core: ValidationError; msgspec: ValidationError DecodeError; "
        "marshmallow: ValidationError; jsonschema: ValidationError; django: ValidationError; "
        "cattrs: BaseValidationError; "
        "voluptuous: Invalid; rest_framework: ValidationError; google: DecodeError",
        Meaning.INVALID,
    ),
    **_named(
        _VALIDATION,
        "builtins: ValueError TypeError KeyError IndexError AttributeError AssertionError NotImplementedError; "
        "json: JSONDecodeError; decimal: InvalidOperation; binascii: Error; csv: Error; struct: error; zlib: error",
        Meaning.MISUSE,
    ),
    **_named(
        _NETWORK,
        "builtins: TimeoutError ConnectionError; socket: gaierror herror timeout; ssl: SSLError; "
        "http: HTTPException; urllib: URLError ContentTooShortError; ftplib: Error; subprocess: TimeoutExpired; "
        "smtplib: SMTPServerDisconnected SMTPConnectError; imaplib: abort; asyncio: IncompleteReadError; "
        "httpx: TransportError; httpcore: NetworkError TimeoutException ProtocolError; urllib3: HTTPError; "
        "requests: ConnectionError Timeout ChunkedEncodingError ContentDecodingError; websockets: ConnectionClosed; "
        "aiohttp: ClientConnectionError ClientPayloadError ServerTimeoutError; anyio: BrokenResourceError; "
        "botocore: HTTPClientError ConnectionError; redis: ConnectionError TimeoutError; "
        "pymongo: AutoReconnect NetworkTimeout ServerSelectionTimeoutError; elasticsearch: ConnectionError; "
        "elastic_transport: ConnectionError; opensearchpy: ConnectionError; "
        "sqlalchemy: DisconnectionError InterfaceError; "
        "psycopg: InterfaceError; psycopg2: InterfaceError; django: InterfaceError; pymysql: InterfaceError; "
        "asyncpg: PostgresConnectionError InterfaceError; paramiko: SSHException; stripe: APIConnectionError; "
        "openai: APIConnectionError; anthropic: APIConnectionError; kafka: KafkaConnectionError; "
        "nats: ConnectionClosedError",
    ),
    **_named(
        _TRANSIENT,
        "sqlalchemy: OperationalError; psycopg: OperationalError; psycopg2: OperationalError; "
        "django: OperationalError; sqlite3: OperationalError; pymysql: OperationalError; MySQLdb: OperationalError; "
        "apsw: BusyError LockedError; asyncpg: DeadlockDetectedError SerializationError OperatorInterventionError; "
        "sqlalchemy: StaleDataError; concurrent: BrokenExecutor; confluent_kafka: KafkaException; "
        "redis: BusyLoadingError TryAgainError ReadOnlyError; stripe: RateLimitError; openai: RateLimitError; "
        "anthropic: RateLimitError; queue: Full Empty; asyncio: CancelledError QueueFull; pymongo: NotPrimaryError",
    ),
    **_named(
        _RESOURCE,
        "builtins: MemoryError; sqlalchemy: TimeoutError; asyncpg: InsufficientResourcesError; "
        "apsw: FullError NoMemError; redis: OutOfMemoryError MaxConnectionsError; "
        "psycopg_pool: PoolTimeout",
    ),
    **_named(
        _PERMISSION,
        "builtins: PermissionError; django: PermissionDenied; asyncpg: InsufficientPrivilegeError "
        "InvalidAuthorizationSpecificationError; redis: AuthenticationError NoPermissionError; "
        "botocore: NoCredentialsError PartialCredentialsError; paramiko: AuthenticationException; jwt: PyJWTError; "
        "smtplib: SMTPAuthenticationError; stripe: AuthenticationError PermissionError; "
        "openai: AuthenticationError PermissionDeniedError; anthropic: AuthenticationError PermissionDeniedError",
    ),
    **_named(
        _VALIDATION,
        "sqlalchemy: DataError; psycopg: DataError; psycopg2: DataError; django: DataError; "
        "asyncpg: DataError; pymysql: DataError; sqlite3: DataError; httpx: InvalidURL; "
        "requests: InvalidURL MissingSchema InvalidSchema JSONDecodeError; botocore: ParamValidationError; "
        "urllib3: LocationParseError; aiohttp: InvalidURL; redis: DataError",
    ),
    **_named(
        _PERMANENT,
        "builtins: ImportError SyntaxError NameError RecursionError FileNotFoundError NotADirectoryError "
        "IsADirectoryError; sqlalchemy: ProgrammingError; psycopg: ProgrammingError NotSupportedError; "
        "psycopg2: ProgrammingError NotSupportedError; django: ProgrammingError ObjectDoesNotExist; "
        "asyncpg: SyntaxOrAccessError; sqlite3: ProgrammingError; stripe: CardError",
    ),
}

# Their parents are in the table, but the status they carry says more.
CARRIERS = frozenset(
    {
        "urllib.HTTPError",
        "grpc.RpcError",
        "botocore.ClientError",
        "httpx.HTTPStatusError",
        "requests.HTTPError",
        "aiohttp.ClientResponseError",
    }
)

_HTTP = {
    **dict.fromkeys((408, 409, 423, 425, 429), _TRANSIENT),
    **dict.fromkeys((401, 402, 403, 407, 511), _PERMISSION),
    **dict.fromkeys((404, 405, 410, 451, 501, 505), _PERMANENT),
    **dict.fromkeys((502, 504, 522, 524), _NETWORK),
    **dict.fromkeys((413, 507, 509), _RESOURCE),
}

GRPC: dict[str, Category] = {
    **dict.fromkeys(("UNAVAILABLE", "DEADLINE_EXCEEDED"), _NETWORK),
    **dict.fromkeys(("ABORTED", "CANCELLED", "INTERNAL", "UNKNOWN"), _TRANSIENT),
    **dict.fromkeys(("PERMISSION_DENIED", "UNAUTHENTICATED"), _PERMISSION),
    **dict.fromkeys(("INVALID_ARGUMENT", "OUT_OF_RANGE", "FAILED_PRECONDITION"), _VALIDATION),
    **dict.fromkeys(("NOT_FOUND", "ALREADY_EXISTS", "UNIMPLEMENTED", "DATA_LOSS"), _PERMANENT),
    "RESOURCE_EXHAUSTED": _RESOURCE,
}

ERRNO: dict[int, Category] = {
    getattr(errno, name): category
    for category, names in {
        _NETWORK: "ECONNREFUSED ECONNRESET ECONNABORTED EPIPE ETIMEDOUT EHOSTUNREACH EHOSTDOWN ENETUNREACH ENETDOWN "
        "ENETRESET ENOTCONN ESHUTDOWN EADDRNOTAVAIL",
        _TRANSIENT: "EAGAIN EWOULDBLOCK EBUSY EINTR EALREADY EINPROGRESS EDEADLK ESTALE EIO ETXTBSY EADDRINUSE",
        _RESOURCE: "ENOSPC EDQUOT EMFILE ENFILE ENOMEM ENOBUFS EFBIG",
        _PERMISSION: "EACCES EPERM EROFS",
        _VALIDATION: "EINVAL ENAMETOOLONG EILSEQ",
        _PERMANENT: "ENOENT ENOTDIR EISDIR EEXIST ENOTEMPTY ELOOP ENODEV ENOSYS",
    }.items()
    for name in names.split()
    if hasattr(errno, name)
}

# Amazon answers "slow down" with 400 as often as with 429.
THROTTLED = re2.compile(r"(?i)throttl|toomanyrequests|slowdown|requestlimitexceeded|throughputexceeded|requesttimeout")


def _texts(*rows: tuple[Category, str]) -> tuple[tuple[Category, re2._Regexp], ...]:
    """Read rows of patterns, one a line, into one pattern each."""
    joined = (
        (category, "|".join(line.strip() for line in lines.split("\n") if line.strip())) for category, lines in rows
    )
    return tuple((category, re2.compile(rf"(?i)\b(?:{pattern})")) for category, pattern in joined)


# The first row that is found decides. Whole words: an author is not an authorisation.
TEXTS = _texts(
    (_VALIDATION, r"(?:invalid|malformed|bad|wrong) (?:connection string|dsn|url|uri|port|host ?name|timeout)\b"),
    (
        _TRANSIENT,
        r"""
        rate.?limit
        too many requests
        throttl
        temporar
        transient
        try again
        retry later
        busy\b
        overloaded\b
        unavailable\b
        deadlock
        database is locked
        could not serialize
        (?:http|status)(?: code)?:? ?(?:408|409|425|429|500|503)\b
        """,
    ),
    (
        _NETWORK,
        r"""
        connect\b
        connection
        time[d -]?out
        timed out
        deadline exceeded
        network
        unreachable
        broken pipe
        socket
        (?:ssl|tls|dns)\b
        certificate
        handshake
        name resolution
        host not found
        no route
        eof occurred
        bad gateway
        (?:http|status)(?: code)?:? ?(?:502|504)\b
        """,
    ),
    (
        _RESOURCE,
        r"""
        memory
        (?:out of|not enough|insufficient|no) (?:disk|space|storage|resources?)
        disk (?:is )?full
        quota
        (?:resources?|limit|capacity|pool) (?:exhausted|exceeded)
        too many open files
        oom\b
        """,
    ),
    (
        _PERMISSION,
        r"""
        permission
        (?:access (?:is )?)?denied\b
        unauthori[sz]ed
        unauthenticated
        forbidden
        not (?:allowed|permitted|authori[sz]ed)
        authenticat
        authori[sz]ation
        credentials?\b
        (?:invalid|expired) (?:token|api key|password)
        (?:http|status)(?: code)?:? ?(?:401|403)\b
        """,
    ),
    (
        _VALIDATION,
        r"""
        invalid
        malformed
        validation
        bad request
        (?:cannot|could not|failed to|unable to) (?:parse|decode)
        pars(?:e|ing) error
        required\b
        missing (?:field|key|argument|parameter)
        not a valid
        unexpected (?:type|value|token|key)
        schema
        constraint
        out of range
        (?:http|status)(?: code)?:? ?(?:400|422)\b
        """,
    ),
)


def http_category(status: int) -> Category:
    """Return what an HTTP status from 400 up means."""
    if status in _HTTP:
        return _HTTP[status]
    return _TRANSIENT if status >= 500 else _VALIDATION  # noqa: PLR2004 - HTTP's own border


def text_category(text: str) -> tuple[Category, str] | None:
    """Return the category and the words that gave it away, or None."""
    for category, pattern in TEXTS:
        if found := pattern.search(text):
            return category, found.group()
    return None
