"""What a Kafka consumer can be told, and what it says of nonsense."""

from __future__ import annotations

import traceback

import pytest
from confluent_kafka import Consumer, Producer

from redrive.errors import SettingsError
from redrive.settings import load_kafka
from redrive.sources.kafka import ExecutionConfig, KafkaConfig, ParallelConsumer
from redrive.sources.kafka.client.settings import consumer_settings
from redrive.sources.kafka.config_checks import topic_problem
from redrive.sources.kafka.environment import read_configs, unread


def test_the_defaults_are_the_documented_ones():
    execution, kafka = ExecutionConfig(), KafkaConfig()

    assert (execution.max_retries, execution.retry_backoff_ms, execution.exponential_backoff) == (3, 1000, True)
    assert (execution.max_retry_backoff_ms, execution.retry_jitter_ms) == (30_000, 200)
    assert (execution.max_in_flight, execution.task_timeout_ms) == (1000, 30_000)
    assert (kafka.dlq_enabled, kafka.dlq_topic("orders"), kafka.dlq_flood_limit) == (True, "orders.dlq", 0)


@pytest.mark.parametrize(
    ("attempt", "draw", "seconds"),
    [(1, 0.0, 1.0), (2, 0.0, 2.0), (2, 0.5, 2.1), (5, 0.0, 16.0), (6, 0.0, 30.0), (900, 0.5, 30.1)],
)
def test_the_backoff_doubles_up_to_its_cap_and_jitter_is_added(attempt, draw, seconds):
    assert ExecutionConfig(max_retries=1000).policy.delay(attempt, draw) == pytest.approx(seconds)


def test_without_exponential_backoff_every_wait_is_the_same():
    policy = ExecutionConfig(exponential_backoff=False, retry_jitter_ms=0).policy
    assert [policy.delay(attempt, 0.9) for attempt in (1, 2, 9)] == [1.0, 1.0, 1.0]


def test_a_constant_wait_is_not_longer_than_the_longest():
    policy = ExecutionConfig(
        exponential_backoff=False, retry_backoff_ms=60_000, max_retry_backoff_ms=5_000, retry_jitter_ms=0
    ).policy
    assert [policy.delay(n, 0.5) for n in (1, 2, 9)] == [5, 5, 5]


def test_keys_are_taken_in_capitals_too_as_an_earlier_consumer_wrote_them():
    kafka = KafkaConfig(DLQ_TOPIC_SUFFIX="-dead", BOOTSTRAP_SERVERS="a:1", consumer_group="g")
    assert (kafka.dlq_topic("orders"), kafka.bootstrap_servers, kafka.consumer_group) == ("orders-dead", "a:1", "g")
    assert ExecutionConfig(MAX_RETRIES=5).max_retries == 5
    with pytest.raises(TypeError, match="DLQ_TOPIC_SUFIX"):
        KafkaConfig(DLQ_TOPIC_SUFIX="-dead")


def test_a_key_that_is_given_in_both_ways_is_refused():
    with pytest.raises(SettingsError, match="DLQ_TOPIC_SUFFIX and dlq_topic_suffix are the same key"):
        KafkaConfig(DLQ_TOPIC_SUFFIX="-dead", dlq_topic_suffix=".dlq")


def test_max_retries_zero_is_refused_because_nothing_would_ever_be_handled():
    with pytest.raises(SettingsError, match=r"max_retries is 0 .* 1 means one try"):
        ExecutionConfig(max_retries=0)


def test_one_retry_means_one_try():
    assert ExecutionConfig(max_retries=1).policy.max_attempts == 1


def test_every_problem_is_told_at_once():
    with pytest.raises(SettingsError) as caught:
        ExecutionConfig(max_retries=0, retry_backoff_ms=-1, mode="fibers", task_timeout_ms=0, max_in_flight=1.5)
    assert len(caught.value.problems) == 5


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"dlq_topic_suffix": ""}, "back to their own topic"),
        ({"dlq_topic_suffix": " dlq"}, "characters"),
        ({"auto_offset_reset": "smallest"}, "earliest, latest or error"),
        ({"settings": {"enable.auto.commit": True}}, "promises rest on"),
        ({"group_protocol": "consumer", "session_timeout_ms": 6000}, "session.timeout.ms"),
        (
            {"group_protocol": "consumer", "settings": {"partition.assignment.strategy": "range"}},
            "partition.assignment.strategy",
        ),
        ({"dlq_enabled": "maybe"}, "true or false"),
        ({"bootstrap_servers": ""}, "name a broker"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_its_name(given, complaint):
    with pytest.raises(SettingsError, match=complaint):
        KafkaConfig(**given)


def test_librdkafkas_own_settings_pass_through():
    config = KafkaConfig(
        bootstrap_servers=("a:1", "b:2"),
        sasl_username="me",
        sasl_password="hidden",  # noqa: S106
        settings={"client.id": "x"},
    )
    assert config.client_settings("consumer") == {
        "log_level": 2,
        "bootstrap.servers": "a:1,b:2", "sasl.username": "me", "sasl.password": "hidden", "client.id": "x",
    }  # fmt: skip
    assert "hidden" not in repr(config)


def test_a_client_gets_no_settings_of_the_other_kind(capfd):
    consumers = {"heartbeat.interval.ms": 2000, "session.timeout.ms": 9000, "isolation.level": "read_committed"}
    loud = {"client.id": "x", "log_level": 6}
    producers = {"linger.ms": 7, "compression.type": "gzip", "batch.size": 9999, "request.timeout.ms": 5000}
    config = KafkaConfig(bootstrap_servers="127.0.0.1:1", settings={**consumers, **producers, **loud})
    assert {**consumers, **loud}.items() <= config.client_settings("consumer").items()
    assert {**producers, **loud}.items() <= config.client_settings("producer").items()
    Producer(config.client_settings("producer"))
    Consumer({**config.client_settings("consumer"), "group.id": "g"}).close()
    assert "CONFWARN" not in capfd.readouterr().err


def test_settings_of_the_other_kind_are_refused_by_name():
    misplaced = {"consumer_settings": {"linger.ms": 7}, "producer_settings": {"isolation.level": "read_committed"}}
    with pytest.raises(SettingsError) as caught:
        KafkaConfig(**misplaced)
    assert "'linger.ms', which only a producer takes; put it into kafka.producer_settings" in str(caught.value)
    assert "'isolation.level', which only a consumer takes; put it into kafka.consumer_settings" in str(caught.value)


def test_dead_letter_topics_are_hidden_from_patterns_alone():
    assert consumer_settings(KafkaConfig(), "g", ["^orders"])["topic.blacklist"] == r"^.*\.dlq$,^.*\.dlq\.parked$"
    for topics in (["orders"], [r"^.*\.dlq$"], ["^orders", "x.dlq"]):
        assert "topic.blacklist" not in consumer_settings(KafkaConfig(), "g", topics)
    assert "topic.blacklist" not in consumer_settings(KafkaConfig(dlq_enabled=False), "g", ["^orders"])


def test_more_records_at_once_than_the_client_hands_over_are_refused():
    with pytest.raises(SettingsError, match="poll_batch_size is 2000000 and may be 1000000 at most"):
        KafkaConfig(poll_batch_size=2_000_000)


def test_configurations_are_read_from_variables():
    execution, kafka = read_configs({
        "EXECUTION_MAX_RETRIES": "5", "EXECUTION_EXPONENTIAL_BACKOFF": "false", "EXECUTION_TASK_TIMEOUT_MS": "none",
        "KAFKA_DLQ_ENABLED": "0", "KAFKA_BOOTSTRAP_SERVERS": "a:1, b:2", "PATH": "/bin",
    })  # fmt: skip
    assert (execution.max_retries, execution.exponential_backoff, execution.task_timeout_ms) == (5, False, None)
    assert (kafka.dlq_enabled, kafka.bootstrap_servers) == (False, ("a:1", "b:2"))


@pytest.mark.parametrize("text", ["a:9092,b:9092", '["a:9092", "b:9092"]', ' ["a:9092","b:9092"] '])
def test_servers_are_read_as_a_line_and_as_a_json_list(text):
    assert read_configs({"KAFKA_BOOTSTRAP_SERVERS": text})[1].bootstrap_servers == ("a:9092", "b:9092")


@pytest.mark.parametrize("text", ["[a:9092]", '["a:9092"', "[1, 2]", '[["a:9092"]]'])
def test_what_begins_like_a_json_list_and_is_none_is_refused_with_all_other_problems(text):
    with pytest.raises(SettingsError) as caught:
        read_configs({"KAFKA_BOOTSTRAP_SERVERS": text, "KAFKA_DLQ_ENABLED": "perhaps"})
    assert [problem.split()[0] for problem in caught.value.problems] == ["KAFKA_BOOTSTRAP_SERVERS", "kafka.dlq_enabled"]


def test_what_is_given_makes_up_for_a_variable_that_cannot_be_read():
    assert read_configs({"KAFKA_BOOTSTRAP_SERVERS": "["}, kafka={"bootstrap_servers": "a"})[1].bootstrap_servers == "a"


def test_librdkafkas_own_settings_are_read_from_variables():
    _, kafka = read_configs({
        "KAFKA_SETTINGS": '{"sasl.oauthbearer.method": "oidc", "socket.keepalive.enable": true}',
        "KAFKA_CONSUMER_SETTINGS": '{"fetch.min.bytes": 7}', "KAFKA_PRODUCER_SETTINGS": " ",
    })  # fmt: skip
    assert kafka.settings == {"sasl.oauthbearer.method": "oidc", "socket.keepalive.enable": True}
    assert consumer_settings(kafka, "g")["fetch.min.bytes"] == 7
    assert kafka.producer_settings == {}


@pytest.mark.parametrize("variable", ["KAFKA_SETTINGS", "KAFKA_CONSUMER_SETTINGS", "KAFKA_PRODUCER_SETTINGS"])
@pytest.mark.parametrize(
    "text",
    ["hidden", '{"sasl.password": "hidden"', '["hidden"]', '"hidden"', '{"a": ["hidden"]}',
     '{"a": null, "b": "hidden"}', '{"hidden": {"hidden": 1}}', '{"a": "hidden\udcff"}'],
)  # fmt: skip
def test_settings_that_are_no_json_object_are_refused_and_never_shown(variable, text):
    with pytest.raises(SettingsError, match=f"{variable} is no JSON object") as caught:
        read_configs({variable: text})
    shown = "".join(traceback.format_exception(caught.value))
    assert "hidden" not in shown
    assert len(caught.value.problems) == 1


def test_settings_from_variables_are_refused_by_name_where_ours_must_stand():
    with pytest.raises(SettingsError, match=r"'enable\.auto\.commit' cannot be passed through"):
        read_configs({"KAFKA_SETTINGS": '{"enable.auto.commit": true}'})


@pytest.mark.parametrize(
    ("variable", "room", "key"),
    [
        ("EXECUTION_ASYNC_CONFIG__TASK_TIMEOUT_MS", 0, "task_timeout_ms"),
        ("EXECUTION_ASYNC_CONFIG__SHUTDOWN_GRACE_TIMEOUT_MS", 0, "shutdown_drain_timeout_ms"),
        ("EXECUTION_PROCESS_CONFIG__PROCESS_COUNT", 0, "process_count"),
        ("PROCESS_PROCESS_COUNT", 0, "process_count"),
        ("PARALLEL_CONSUMER_POLL_BATCH_SIZE", 1, "poll_batch_size"),
        ("PARALLEL_CONSUMER_QUEUE_MAX_MESSAGES", 1, "queue_max_messages"),
        ("PARALLEL_CONSUMER_MESSAGE_CACHE_MAX_BYTES", 1, "message_cache_max_bytes"),
        ("PARALLEL_CONSUMER_WORKER_POOL_SIZE", 0, "worker_pool_size"),
        ("PARALLEL_CONSUMER_EXECUTION__MAX_RETRIES", 0, "max_retries"),
        ("KAFKA_PARALLEL_CONSUMER__POLL_BATCH_SIZE", 1, "poll_batch_size"),
        ("KAFKA_PARALLEL_CONSUMER__EXECUTION__MAX_RETRIES", 0, "max_retries"),
        ("KAFKA_PARALLEL_CONSUMER__EXECUTION__ASYNC_CONFIG__TASK_TIMEOUT_MS", 0, "task_timeout_ms"),
    ],
)
def test_variables_of_the_earlier_consumer_are_read_where_there_is_the_same_here(variable, room, key):
    assert getattr(read_configs({variable: "77"})[room], key) == 77
    assert unread({variable: "77"}) == []


def test_a_time_limit_of_one_mode_is_not_that_of_the_other():
    both = {"EXECUTION_ASYNC_CONFIG__TASK_TIMEOUT_MS": "1", "EXECUTION_PROCESS_CONFIG__TASK_TIMEOUT_MS": "2"}
    assert read_configs(both)[0].task_timeout_ms == 1
    assert read_configs({**both, "EXECUTION_MODE": "process"})[0].task_timeout_ms == 2
    assert read_configs(both, execution={"mode": "process"})[0].task_timeout_ms == 2
    assert read_configs({**both, "EXECUTION_TASK_TIMEOUT_MS": "3"})[0].task_timeout_ms == 3


@pytest.mark.parametrize(
    ("variable", "said"),
    [
        ("KAFKA_DLQ_ENABLD", "did you mean KAFKA_DLQ_ENABLED?"),
        ("KAFKA_BOOTSTRAP_SERVER", "did you mean KAFKA_BOOTSTRAP_SERVERS?"),
        ("EXECUTION_MAX_RETRY", "did you mean EXECUTION_MAX_RETRIES?"),
        ("EXECUTION_PROCESS_CONFIG__QUEUE_SIZE", "has such a key"),
        ("KAFKA_PARALLEL_CONSUMER__ORDERING_MODE", "has such a key"),
        ("PARALLEL_CONSUMER_ORDERING_MODE", "has such a key"),
        ("KAFKA_ENABLE_AUTO_COMMIT", "has such a key"),
    ],
)
def test_a_variable_that_nobody_reads_and_somebody_meant_is_told_without_its_value(variable, said):
    [told] = unread({variable: "secret", "PATH": "/bin"})
    assert variable in told
    assert said in told
    assert "secret" not in told


def test_variables_that_are_read_or_somebody_elses_are_not_told():
    read = {"KAFKA_DLQ_ENABLED": "1", "EXECUTION_MAX_RETRIES": "3", "KAFKA_SASL_PASSWORD": "x"}
    others = ("KAFKA_HOME", "KAFKA_HEAP_OPTS", "KAFKA_OPTS", "KAFKA_LOG_DIRS", "KAFKA_BROKER_ID", "KAFKA_NODE_ID",
              "KAFKA_ADVERTISED_LISTENERS", "KAFKA_GROUP_ID", "KAFKA_TOPIC", "EXECUTION_ENVIRONMENT", "PROCESS_ID",
              "X__KAFKA_DLQ")  # fmt: skip
    assert unread({**read, **dict.fromkeys(others, "x")}) == []


def test_what_is_not_read_is_logged_when_the_environment_is_read(monkeypatch, caplog):
    monkeypatch.setenv("KAFKA_DLQ_ENABLD", "secret")
    load_kafka()
    assert [(line.levelname, "KAFKA_DLQ_ENABLED?" in line.getMessage()) for line in caplog.records] == [
        ("WARNING", True)
    ]
    assert "secret" not in caplog.text


def test_what_is_given_wins_over_variables():
    execution, _ = read_configs({"EXECUTION_MAX_RETRIES": "5"}, execution={"max_retries": 2})
    assert execution.max_retries == 2


def test_problems_of_both_configurations_are_told_at_once():
    with pytest.raises(SettingsError) as caught:
        read_configs({"EXECUTION_MAX_RETRIES": "three", "KAFKA_DLQ_ENABLED": "perhaps"})
    assert [problem.split(" is ")[0] for problem in caught.value.problems] == [
        "execution.max_retries",
        "kafka.dlq_enabled",
    ]


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "x" * 250])
def test_what_cannot_be_a_topic_is_said(name):
    assert topic_problem(name)
    assert not topic_problem("Orders_1.dlq-x")


@pytest.mark.parametrize(
    ("name", "way"), [("acks", "leave it away"), ("message.timeout.ms", "dlq_flush_timeout_ms"), ("group.id", "group")]
)
def test_a_setting_that_would_be_ignored_is_refused_with_a_way_out(name, way):
    with pytest.raises(SettingsError, match=f"{name}.*{way}"):
        KafkaConfig(producer_settings={name: 1})


def test_exactly_once_refuses_to_read_what_was_aborted():
    with pytest.raises(SettingsError, match=r"isolation\.level"):
        KafkaConfig(exactly_once=True, consumer_settings={"isolation.level": "read_uncommitted"})


def test_topics_are_looked_for_often_because_a_question_that_a_lost_broker_took_with_it_is_not_repeated():
    name = "topic.metadata.refresh.interval.ms"
    assert consumer_settings(KafkaConfig(), "g")[name] <= 30_000
    assert consumer_settings(KafkaConfig(settings={name: 300_000}), "g")[name] == 300_000


async def test_a_setting_that_the_client_does_not_know_is_a_problem_of_the_settings():
    consumer = ParallelConsumer(["a"], print, group="g", kafka=KafkaConfig(consumer_settings={"nonsense": 1}))
    with pytest.raises(SettingsError, match=r"nonsense.*passed through"):
        await consumer.run()


def test_a_short_session_has_heartbeats_in_it():
    short = consumer_settings(KafkaConfig(session_timeout_ms=3_000), "shipping")
    long = consumer_settings(KafkaConfig(session_timeout_ms=60_000), "shipping")
    chosen = KafkaConfig(session_timeout_ms=3_000, consumer_settings={"heartbeat.interval.ms": 700})
    assert (short["session.timeout.ms"], short["heartbeat.interval.ms"]) == (3_000, 1_000)
    assert long["heartbeat.interval.ms"] == 3_000
    assert consumer_settings(chosen, "shipping")["heartbeat.interval.ms"] == 700
