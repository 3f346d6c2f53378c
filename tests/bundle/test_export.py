"""A bundle's table in a database: typed, whole or not at all, and never in place of another."""

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as parquet
import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from synthdp.bundle import load_signer, make_keys, write_bundle
from synthdp.cli.main import app
from synthdp.errors import OutputError, VerifyError
from synthdp.sample import check_columns_held, table_of, warehouse, write_table
from synthdp.spec import load_spec
from synthdp.spec.model import Signing
from tests.fire.postgres import find_or_install, private_server

FIELDS = {  # type of a field of the Data Package: what the database may say
    "integer": sa.Integer,
    "number": sa.Double,
    "boolean": sa.Boolean,
    "date": sa.Date,
    "datetime": sa.DateTime,
    "string": sa.String,
}


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A fresh, empty database of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'warehouse.db'}"
        return
    binaries = find_or_install()
    if isinstance(binaries, str):
        pytest.skip(f"no PostgreSQL: {binaries}")
    with private_server(binaries) as server:
        yield server.new_database()


def held(address: str, name: str = "clinic") -> pd.DataFrame:
    engine = sa.create_engine(address, poolclass=sa.pool.NullPool)
    with engine.connect() as connection:
        return pd.read_sql_table(name, connection)


def test_rows_and_types_are_those_of_the_bundle(made: Path, address: str) -> None:
    done = write_table(made, address, "clinic")
    published = parquet.read_table(made / "synthetic.parquet").to_pylist()
    assert done.rows == len(published) and not done.replaced
    engine = sa.create_engine(address, poolclass=sa.pool.NullPool)
    stored = sa.Table("clinic", sa.MetaData(), autoload_with=engine)
    with engine.connect() as connection:
        assert [dict(row._mapping) for row in connection.execute(stored.select())] == published
    fields = json.loads((made / "datapackage.json").read_text())["resources"][0]["schema"]["fields"]
    for field, column in zip(fields, sa.inspect(engine).get_columns("clinic"), strict=True):
        assert isinstance(column["type"], FIELDS[field["type"]]), field
        assert column["nullable"] == (not field["constraints"]["required"])


def run(address: str, *statements: str) -> None:
    engine = sa.create_engine(address, poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def test_a_table_is_replaced_only_on_request_and_only_if_an_export_wrote_it(
    made: Path, address: str
) -> None:
    write_table(made, address, "clinic")
    with pytest.raises(OutputError, match="exists; nothing was written"):
        write_table(made, address, "clinic")
    assert write_table(made, address, "clinic", replace=True).replaced
    run(address, "create table original as select * from clinic")
    before = held(address, "original")
    with pytest.raises(OutputError, match="nothing says that synthdp wrote") as refused:
        write_table(made, address, "original", replace=True)
    assert "drop it yourself" in str(refused.value.hint)
    pd.testing.assert_frame_equal(held(address, "original"), before)


def test_a_table_that_changed_since_its_export_is_not_replaced(made: Path, address: str) -> None:
    write_table(made, address, "clinic")
    run(
        address,
        "drop table clinic",
        "create table clinic (id integer)",
        "insert into clinic values (7)",
    )
    with pytest.raises(OutputError, match="other columns"):
        write_table(made, address, "clinic", replace=True)
    assert held(address)["id"].tolist() == [7]


def test_what_a_database_cannot_hold_is_told_before_the_bundle_is_verified(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "bundle"
    shutil.copytree(made, bundle)
    text = (bundle / "spec.yaml").read_text()
    (bundle / "spec.yaml").write_text(
        text.replace("\ncolumns:\n", "\ncolumns:\n  SMOKER: {type: boolean}\n")
    )
    assert {"smoker", "SMOKER"} <= set(load_spec(bundle / "spec.yaml").columns)

    def late(*_: object, **__: object) -> None:
        raise AssertionError("it was verified first")

    monkeypatch.setattr(warehouse, "verify_bundle", late)
    with pytest.raises(OutputError, match="differ in upper and lower case alone"):
        write_table(bundle, f"sqlite:///{tmp_path / 'w.db'}", "clinic")
    assert not (tmp_path / "w.db").exists()


@pytest.mark.parametrize(
    ("dialect", "names", "told"),
    [
        ("mysql", ["Dose", "dose"], "'Dose' and 'dose' differ"),
        ("bigquery", ["a", "ÄRZTE", "ärzte"], "'ÄRZTE' and 'ärzte' differ"),
        ("postgresql", ["Dose", "dose"], None),
        ("postgresql", ["ü" * 32], "more than 63 bytes"),
        ("sqlite", ["ü" * 100], None),
        ("mssql", [f"q{i}" for i in range(1025)], "1,025 columns, and a table has 1,024"),
        ("unheard-of", ["Dose", "dose"], None),
    ],
)
def test_each_database_has_its_own_bounds(dialect: str, names: list[str], told: str | None) -> None:
    if told is None:
        check_columns_held(dialect, names)
    else:
        with pytest.raises(OutputError, match=told):
            check_columns_held(dialect, names)


def test_exports_are_noted_once_for_each_table(made: Path, address: str) -> None:
    for name, replace in (("clinic", False), ("second", False), ("clinic", True)):
        write_table(made, address, name, replace=replace)
    noted = held(address, "synthdp_exports")
    assert sorted(noted["table_name"]) == ["clinic", "second"]
    digest = hashlib.sha256((made / "SHA256SUMS").read_bytes()).hexdigest()
    assert set(noted["bundle_sha256"]) == {digest}
    engine = sa.create_engine(address, poolclass=sa.pool.NullPool)
    schema = sa.inspect(engine).default_schema_name
    assert write_table(made, address, f"{schema}.second", replace=True).replaced


def test_a_foreign_table_of_notes_is_left_alone(made: Path, address: str) -> None:
    run(address, "create table synthdp_exports (id integer)")
    with pytest.raises(OutputError, match="that synthdp did not make"):
        write_table(made, address, "clinic")
    with pytest.raises(OutputError, match="notes which tables"):
        write_table(made, address, "synthdp_exports", replace=True)
    assert held(address, "synthdp_exports").columns.tolist() == ["id"]


def test_a_broken_write_leaves_what_was_there(
    made: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table(made, address, "clinic")
    before = held(address)
    whole = warehouse.row_groups

    def broken(*args: Any) -> Iterator[Any]:
        yield from whole(*args)
        raise sa.exc.OperationalError("insert", {}, Exception("no space left"))

    monkeypatch.setattr(warehouse, "row_groups", broken)
    with pytest.raises(OutputError, match="its disk is full"):
        write_table(made, address, "clinic", replace=True)
    pd.testing.assert_frame_equal(held(address), before)
    with pytest.raises(OutputError):
        write_table(made, address, "second")
    assert not sa.inspect(sa.create_engine(address, poolclass=sa.pool.NullPool)).has_table("second")


def test_a_changed_bundle_is_refused_before_anything_is_made(made: Path, tmp_path: Path) -> None:
    bundle = Path(shutil.copytree(made, tmp_path / "copy"))
    with (bundle / "synthetic.csv").open("a") as file:
        file.write("\n")
    with pytest.raises(VerifyError):
        write_table(bundle, f"sqlite:///{tmp_path / 'w.db'}", "clinic")
    assert not (tmp_path / "w.db").exists()


def signed(folder: Path, build: Callable[..., Any]) -> tuple[Path, Path]:
    """A bundle, and the public key of whom signed it."""
    private, public = make_keys(folder / "keys")
    signer = load_signer(Signing(), environment={"SYNTHDP_SIGNING_KEY": str(private)})
    release = build(folder)
    bundle = write_bundle(
        folder / "bundle", release.content, ledger=release.ledger, force=False, signer=signer
    )
    return bundle, public


def test_nobody_elses_rows_are_written_where_a_key_is_given(
    made: Path, tmp_path: Path, build: Callable[..., Any]
) -> None:
    """Neither those of an unsigned bundle nor those that another has signed."""
    (tmp_path / "stranger").mkdir()
    bundle, public = signed(tmp_path, build)
    _, other = make_keys(tmp_path / "stranger")
    for rows, key in ((made, public), (bundle, other)):
        address = f"sqlite:///{tmp_path / 'w.db'}"
        command = ["export", str(rows), "--to", address, "--table", "clinic", "--key", str(key)]
        done = CliRunner().invoke(app, command)
        assert isinstance(done.exception, VerifyError), done.output
        assert not (tmp_path / "w.db").exists()
    command = ["export", str(bundle), "--to", address, "--table", "clinic", "--key", str(public)]
    assert CliRunner().invoke(app, command).exit_code == 0 and len(held(address))


@pytest.mark.parametrize(
    "address",
    [
        "postgresql+psycopg://me:hunter2@127.0.0.1:1/db",
        "nosuch://me:hunter2@host/db",
        "postgresql+psycopg://me:hun/ter2@127.0.0.1:1/db",
        "me:hunter2@host",
    ],
)
def test_no_password_is_printed(made: Path, address: str) -> None:
    done = CliRunner().invoke(app, ["export", str(made), "--to", address, "--table", "t"])
    assert isinstance(done.exception, OutputError)
    told = f"{done.output} {done.exception} {done.exception.__context__ or ''}"
    assert done.exit_code != 0 and "hunter" not in str(done.exception) and "ter2" not in told


def test_the_address_comes_from_the_environment(made: Path, tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path / 'w.db'}"
    done = CliRunner().invoke(
        app,
        ["export", str(made), "--table", "clinic", "--json"],
        env={"SYNTHDP_EXPORT_TO": address},
    )
    facts = json.loads(done.stdout)
    assert facts["table"] == "clinic" and facts["rows"] == len(held(address))


def test_schemas_and_comments(made: Path) -> None:
    table = table_of(load_spec(made / "spec.yaml").columns, "research.clinic")
    assert (table.schema, table.name) == ("research", "clinic")
    assert "differential privacy" in str(table.comment)
    with pytest.raises(OutputError, match="no name"):
        table_of(load_spec(made / "spec.yaml").columns, "research.")


def test_a_table_of_this_name_in_another_schema_was_not_exported(made: Path, address: str) -> None:
    """It may be an original, and is not replaced."""
    mine, other = (sa.Table("clinic", sa.MetaData(), schema=schema) for schema in ("mine", "other"))
    engine = sa.create_engine(address, poolclass=sa.pool.NullPool)
    with engine.begin() as connection:
        warehouse.mark(connection, mine, made)
        assert warehouse.marked(connection, mine)
        assert not warehouse.marked(connection, other)
        assert not warehouse.marked(connection, sa.Table("clinic", sa.MetaData()))
        warehouse.mark(connection, other, made)
        noted = connection.exec_driver_sql("select count(*) from synthdp_exports").scalar()
    assert noted == 2
