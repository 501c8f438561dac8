"""Reads a queue of orders as a Spark stream, and counts them by city, each order once.

Spark also publishes the orders, from a DataFrame. Needs the extra `spark` and Java.
"""

import asyncio
import tempfile
from pathlib import Path

from qos.spark.formats import register
from qos.spark.session import spark_session
from qos.testing import LoopbackServer, friends, logged_in, queue_service
from xep_0254 import XEP_0254

SERVICE, NODE = "queue.localhost", "orders"
ORDER = "concat('<order xmlns=\"urn:shop\" city=\"', city, '\"/>') AS payload"
CITIES = ["Bonn", "Kiel", "Ulm"]


def count_orders(server: LoopbackServer, folder: Path) -> None:
    queue = {
        "jid": "shop@localhost",
        "password": "secret",  # or the variable XMPP_QOS_PASSWORD
        "host": server.host,
        "port": str(server.port),
        "tls": "off",
        "service": SERVICE,
        "node": NODE,
    }
    source = {
        # The folder for items that were taken from the queue. On a cluster the driver
        # and all executors must see it.
        "landing": str(folder / "landing"),
        "checkpoint": str(folder / "checkpoint"),
    }
    with spark_session("orders", master="local[2]", quiet=True) as spark:
        register(spark)
        orders = spark.range(300).selectExpr(
            "id AS number",
            f"element_at(array{tuple(CITIES)}, int(id % {len(CITIES)}) + 1) AS city",
        )
        # Spark may write rows again: the number tells which orders are the same.
        writing = orders.selectExpr("number", ORDER).write.format("xmpp-queue")
        writing.mode("append").options(**queue, id="number").save()
        items = spark.readStream.format("xmpp-queue").options(**queue, **source).load()
        query = (
            items.selectExpr("xpath_string(payload, '/*/@city') AS city")
            .writeStream.trigger(availableNow=True)
            .option("checkpointLocation", source["checkpoint"])
            .start(str(folder / "cities"), format="parquet")
        )
        query.awaitTermination()
        counts = spark.read.parquet(str(folder / "cities")).groupBy("city").count()
        for row in counts.orderBy("city").collect():
            print(f"{row['city']}: {row['count']}")


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with (
            friends("shop", components={SERVICE: "secret"}) as server,
            queue_service(server, SERVICE),
            logged_in(server, "shop/1", {"xep_0254": {}}) as shop,
        ):
            queues = XEP_0254.of(shop)
            await queues.create(SERVICE, NODE)
            await asyncio.to_thread(count_orders, server, Path(folder))
            left: float = 1
            while left:  # The source retracts the last batch after Spark has ended it.
                await asyncio.sleep(0.1)
                stats = await queues.stats(SERVICE, NODE)
                left = sum(stats[name] or 0 for name in ("available", "acquired"))
            print("the queue is empty")


if __name__ == "__main__":
    asyncio.run(main())
