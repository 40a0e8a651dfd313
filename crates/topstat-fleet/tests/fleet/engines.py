# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs the SQL texts on the standard input, a JSON list, in an engine: engines.py duckdb|clickhouse|spark
The answer is a list with the rows of each, as text with | between the columns.
The job that is shipped (topstat_top.py) is on PYTHONPATH. Spark: MASTER is the cluster."""

import json
import os
import sys


def duckdb(texts):
    import duckdb

    return [duckdb.connect().execute(text).fetchall() for text in texts]


def clickhouse(texts):
    from chdb import session
    from topstat_top import statements

    client = session.Session()
    answers = []
    for text in texts:
        for statement in statements(text):
            answer = client.query(statement, "JSONCompactEachRow")
        answers.append([json.loads(line) for line in str(answer).splitlines()])
    return answers


def spark(texts):
    from pyspark.sql import SparkSession
    from topstat_top import top

    client = SparkSession.builder.master(os.environ["MASTER"]).config("spark.ui.enabled", "false")
    client = client.config("spark.sql.shuffle.partitions", "2").config("spark.driver.bindAddress", "127.0.0.1")
    client = client.config("spark.driver.host", "127.0.0.1").config("spark.executor.memory", "512m").getOrCreate()
    answers = [top(client, text).collect() for text in texts]
    executors = client._jsc.sc().getExecutorMemoryStatus().size() - 1
    client.stop()
    if os.environ["MASTER"].startswith("spark:") and executors != 2:
        sys.exit(f"{executors} executors, and not 2")
    return answers


engine = {"duckdb": duckdb, "clickhouse": clickhouse, "spark": spark}[sys.argv[1]]
answers = [["|".join(map(str, row)) for row in rows] for rows in engine(json.load(sys.stdin))]
json.dump(answers, sys.stdout)
