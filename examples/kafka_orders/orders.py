"""Fill the topic `orders` with four orders, two of which have no address: the input of shop.py."""

import json
import os

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

servers = {"bootstrap.servers": os.environ.get("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092")}
admin = AdminClient(servers)
admin.create_topics([NewTopic("orders", 3)])["orders"].result()

orders = [(17, "ann", "1 Main Street"), (18, "bob", None), (19, "bob", None), (20, "bob", "2 Side Road")]
producer = Producer(servers)
for number, customer, address in orders:
    producer.produce("orders", json.dumps({"number": number, "address": address}), key=customer)
producer.flush()
print(f"{len(orders)} orders are in the topic")
