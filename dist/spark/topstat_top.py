#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Runs the SQL of `topstat fleet sql --engine spark` as a Spark job, and writes a JSON document for each row.

    topstat fleet sql net_cgroups/bps --engine spark --at 04:00 --over 1h s3a://fleet > top.sql
    spark-submit --master spark://master:7077 topstat_top.py top.sql
    spark-submit --master yarn --deploy-mode cluster --files top.sql topstat_top.py top.sql --to s3a://fleet-tops/04

The file may also be at any place that Spark reads: hdfs://…, s3a://….
"""

import argparse
import json
import os
import sys
import warnings


def statements(sql):
    """The statements of a text: each ends with a semicolon at the end of a line."""
    return [statement for statement in (sql + "\n").split(";\n") if statement.strip()]


def top(spark, sql):
    """Runs the statements. Returns the table of the last one, whose rows are in the order of their places."""
    table = None
    for statement in statements(sql):
        table = spark.sql(statement)
    return table


def text_of(spark, path):
    """The text of a file on this host, or at a place that Spark reads."""
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            return file.read()
    return "\n".join(row.value for row in spark.read.option("wholetext", True).text(path).collect())


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("sql", help="a file with the SQL")
    arguments.add_argument("--to", metavar="PATH", help="write a file of JSON lines into this directory, and not to the standard output")
    given = arguments.parse_args()

    # spark-submit writes the warnings of Python to the standard output, among the rows.
    warnings.simplefilter("ignore")
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("topstat fleet top").getOrCreate()
    try:
        rows = top(spark, text_of(spark, given.sql))
        if rows is None:
            sys.exit(f"{given.sql} has no statement")
        if given.to:
            rows.coalesce(1).write.mode("overwrite").json(given.to)
        else:
            for row in rows.collect():
                print(json.dumps(row.asDict(), default=str))
    finally:
        spark.stop()


if __name__ == "__main__":
    main()
