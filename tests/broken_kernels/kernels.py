"""Ways to break the kernel, each a few words of its source, and where the suites must notice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

UNBROKEN = "as it is"


@dataclass(frozen=True)
class Broken:
    """One broken kernel.

    In `file` each first text of `edits` becomes the second. `caught` are parts of the names of
    tests that must fail; `place` is a regular expression that every failing test's name must match;
    `says` must be found in what a failure says. `tests` are the files to run where the whole of
    `run.SUITES` would say no more.
    """

    file: str
    edits: tuple[tuple[str, str], ...]
    caught: tuple[str, ...]
    place: str
    says: str
    tests: tuple[str, ...] = ()

    def apply(self, root: Path) -> None:
        """Break the copy at `root`."""
        path = root / self.file
        text = path.read_text(encoding="utf-8")
        for old, new in self.edits:
            if text.count(old) != 1:
                raise SystemExit(
                    f"{self.file} holds {old!r} {text.count(old)} times, not once: mend"
                    f" {Path(__file__).name}"
                )
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")


NOISE, SESSION = "synthdp/privacy/noise.py", "synthdp/privacy/session.py"
DPSGD = "synthdp/privacy/dpsgd/training.py"
COUNTS, ANM = (f"synthdp/privacy/mechanisms/{name}.py" for name in ("marginals", "anm"))
CHARGE = (
    "        entry = self._lease.charge(purpose=purpose, mechanism=mechanism.name, event=event)\n"
)
VALUES = "synthdp/data/encoding.py"
ONCE = "once = _one_by_one(_objects(cells.dictionary), meaning, column)"
BY_PANDAS = """held = _objects(cells.dictionary)
        if column is not None and column.type == "datetime":
            import pandas as pd

            read = pd.to_datetime(pd.Series(held, dtype=object), errors="coerce", format="ISO8601", utc=True).dt.tz_localize(None)
            held = [str(value)[:19] for value in read]
        once = _one_by_one(held, meaning, column)"""  # noqa: E501
OPENING = "synthdp/release/open_session.py"
TOGETHER = "tables_for(self._private.unseal(key=_KERNEL_KEY), list(mechanisms.values()))"
RECEIPTS = "        receipts = {}\n"
RETURN = (
    "        return Released(value, frozenset({Receipt(self._run, entry.hash)}), key=_KERNEL_KEY)\n"
)

FILTER = ("tests/privacy/test_gaussian_filter.py",)

KERNELS = {
    "half the noise on planned tables": Broken(
        NOISE,
        (("_gaussian_measurement(_checked(sigma))", "_gaussian_measurement(_checked(sigma / 2))"),),
        caught=(
            "test_noise_has_its_scale_and_no_other[Discrete(sigma=25.0)]",
            "test_noise_does_not_depend_on_the_counts[discrete]",
            "test_each_table_has_the_noise_of_its_own_scale",
            "test_worst_case",
        ),
        place=(
            r"[Dd]iscrete|test_each_table_has_the_noise|test_a_plan_gives_units"
            r"|test_audit_of_a_plan|test_worst_case.*\[tables"
        ),
        says=r"(?i)discrete",
    ),
    "half the noise on chosen tables": Broken(
        NOISE,
        (
            (
                "            _checked(sigma) * self.noise",
                "            _checked(sigma / 2) * self.noise",
            ),
        ),
        caught=(
            "test_noise_has_its_scale_and_no_other[Rounded(sigma=25.0)]",
            "test_noise_does_not_depend_on_the_counts[rounded]",
            "test_worst_case",
        ),
        place=(
            r"test_a_plan_gives_units|[Rr]ounded|test_noise_of_chosen_tables|test_audit_of_a_plan|test_worst_case.*\[chosen"
            r" tables"
        ),
        says=r"(?i)rounded",
    ),
    "half the noise on gradients": Broken(
        NOISE,
        (("(_checked(sigma) / _checked(spacing))", "(_checked(sigma / 2) / _checked(spacing))"),),
        caught=("test_noise_has_its_scale_and_no_other[Lattice(sigma=30.0", "test_worst_case"),
        place=r"[Ll]attice|test_blocks_of_noise|test_audit_of_a_plan|test_worst_case.*\[gradients",
        says=r"(?i)lattice",
    ),
    "one stream for all blocks of noise on gradients": Broken(
        NOISE,
        (
            (
                "[fresh_generator() for _ in parts]",
                "[np.random.Generator(np.random.Philox(5)) for _ in parts]",
            ),
        ),
        caught=("test_blocks_of_noise_on_threads_are_independent_and_of_the_same_law",),
        place=r"test_blocks_of_noise",
        says=r"independent",
    ),
    "batches by the number of rows": Broken(
        DPSGD,
        (
            (
                "poisson_batch(len(codes), rate=self.settings.rate)",
                (
                    "poisson_batch(len(codes), rate=min(1.0, self.settings.expected_batch /"
                    " max(len(codes), 1)))"
                ),
            ),
        ),
        caught=(
            "tests.audit.test_replay.test_what_is_right",
            "tests.audit.test_replay.test_a_plan_is_replayed",
        ),
        place=r"tests\.audit\.test_(replay|worst_case)",
        says=r"mechanism='DP-SGD[^\n]*differs='rate'",
    ),
    "tables of units of k rows charged as one row": Broken(
        COUNTS,
        (("[self.sampler](self.sigma, rows_per_unit)", "[self.sampler](self.sigma, 1)"),),
        caught=(
            "test_tables_are_charged_for_all_rows_of_a_unit[add_remove",
            "[replace_one-",
            "test_what_is_right_raises_no_alarm_on_some_pairs",
        ),
        place=r"test_tables_are_charged|test_a_plan_gives_units|test_each_table_has_the_noise|test_what_is_right|test_a_plan_is_replayed|test_worst_case.*units_of_several",
        says=r"moved|charged",
    ),
    "noise of chosen pairs that does not grow with their number": Broken(
        ANM,
        (
            (
                "noise = self.noise_multiplier * math.sqrt(len(pairs))",
                "noise = self.noise_multiplier",
            ),
        ),
        caught=("test_pairs_that_are_chosen_together_move_no_further_than_is_charged",),
        place=r"tests\.audit\.test_replay",
        says="additive noise models",
    ),
    "one unit of time for all dates of a column": Broken(
        VALUES,
        ((ONCE, BY_PANDAS),),
        caught=(
            "test_seven_digits_of_a_second_change_no_other_date[csv]",
            "test_no_value_changes_what_another_is_read_as",
        ),
        place=r"test_source|test_reading",
        says=r"read otherwise than alone",
    ),
    "slots by arrival instead of coins": Broken(
        NOISE,
        (
            (
                "last = full + self.sampling.permutation(slots)[: rows - full]",
                "last = np.arange(full, rows)",
            ),
            (
                (
                    "return self.sampling.permutation(np.concatenate([np.arange(full), last])) if"
                    " full else last"
                ),
                "return np.arange(rows)",
            ),
        ),
        caught=(
            "test_each_way_to_place_rows_is_as_likely",
            "test_one_row_more_has_the_law_of_the_coupling",
        ),
        place=r"test_slots|test_noise",
        says=r"assert",
    ),
    "weights without a bound": Broken(
        DPSGD,
        (
            (
                "        self.optimizer.step()\n        clamp_weights(self.params)\n",
                "        self.optimizer.step()\n",
            ),
        ),
        caught=("test_noisy_weights_are_bounded_after_each_step",),
        place=r"test_noisy_weights_are_bounded",
        says=r"64",
    ),
    "rows seen before the charge is in the ledger": Broken(
        SESSION,
        ((CHARGE, ""), (RETURN, CHARGE + RETURN)),
        caught=(
            "test_charge_is_durable_before_the_rows_are_seen",
            "test_ledger_that_refuses_keeps_the_rows_shut",
            "test_killed_again",
        ),
        place=r"test_session|test_kill",
        says="charge",
    ),
    "rows seen together before any charge is in the ledger": Broken(
        SESSION,
        (
            (
                f"        tables = {TOGETHER}\n",
                "        tables = [self._early[p] for p in mechanisms]\n",
            ),
            (RECEIPTS, f"        self._early = dict(zip(mechanisms, {TOGETHER}))\n{RECEIPTS}"),
        ),
        caught=(
            "test_numbers_are_those_of_one_by_one_in_one_pass[memory]",
            "test_numbers_are_those_of_one_by_one_in_one_pass[arrow]",
            "test_killed_between_the_charges_and_the_look",
            "test_one_that_may_not_be_released_keeps_the_rows_shut[settled]",
        ),
        place=r"test_together",
        says=r"assert \[\[\]\] ==",
        tests=("tests/privacy/test_session.py", "tests/privacy/test_together.py"),
    ),
    "rows counted twice on groups of levels": Broken(
        "synthdp/privacy/mechanisms/marginals.py",
        (
            (
                "counted = table.count(LevelGroups(self.budget.domain, self.starts), self.tables)",
                (
                    "counted = [c * (1 + bool(self.starts)) for c in table.count("
                    "LevelGroups(self.budget.domain, self.starts), self.tables)]"
                ),
            ),
        ),
        caught=(
            "test_what_is_right_raises_no_alarm",
            "test_chosen_tables_are_counted_on_groups_of_levels",
        ),
        place=r"test_replay|test_mechanisms|test_worst_case",
        says=r"differs='moved'[^\n]*of the noise",
        tests=("tests/audit/test_replay.py", "tests/privacy/test_mechanisms.py"),
    ),
    "a run that several processes hold": Broken(
        "synthdp/ledger/ledger.py",
        (("    if after is not None:\n        last", '    if after == "":\n        last'),),
        caught=(
            "test_whoever_opens_a_run_takes_it_over",
            "test_a_value_that_was_looked_at_while_another_process_took_over_is_not_used",
        ),
        place=r"test_session|test_copies",
        says=r"DID NOT RAISE|IndexError|values",
        tests=(
            "tests/privacy/test_session.py",
            "tests/privacy/test_ledger.py",
            "tests/fire/test_copies.py",
        ),
    ),
    "a run that does not ask what was kept": Broken(
        "synthdp/ledger/ledger.py",
        (("        return self._kept.get(purpose)\n", "        return None\n"),),
        caught=(
            "test_a_journal_older_than_the_ledger_gives_no_second_look",
            "test_journal_gives_a_released_value_back_without_a_second_look",
        ),
        place=r"test_session|test_copies",
        says=r"DID NOT RAISE|values",
        tests=(
            "tests/privacy/test_session.py",
            "tests/privacy/test_ledger.py",
            "tests/fire/test_copies.py",
        ),
    ),
    "a rule of the cap that is chosen after the fact": Broken(
        "synthdp/ledger/entries.py",
        (
            (
                "return spent if self.mu == 0 and filtered.over else",
                "return spent if filtered.over else",
            ),
        ),
        caught=(
            "test_runs_chosen_in_the_light_of_results_leak_no_more_than_the_cap",
            "test_what_is_lost_has_its_own_part_of_the_cap",
        ),
        place=r"test_gaussian_filter",
        says=r"DID NOT RAISE|assert",
        tests=FILTER,
    ),
    "a filter that forgets what is lost": Broken(
        "synthdp/ledger/entries.py",
        (
            (
                "passed = tail > (1 - FOR_LOST) * delta, self.lost > FOR_LOST * delta",
                "passed = tail > (1 - FOR_LOST) * delta, False",
            ),
        ),
        caught=(
            "test_what_is_lost_has_its_own_part_of_the_cap",
            "test_a_first_run_that_does_not_fit_the_filter_adds_up",
        ),
        place=r"test_gaussian_filter",
        says=r"DID NOT RAISE|assert",
        tests=FILTER,
    ),
    "a filter that counts a part of the plan": Broken(
        "synthdp/privacy/plan.py",
        (
            (
                "bound_of(self.composed(), delta=self.delta",
                "bound_of(self.composed(self.spends[0]), delta=self.delta",
            ),
        ),
        caught=(
            "test_a_run_must_not_spend_more_than_the_numbers_it_reserved",
            "test_adult_has_room_for_nine_releases",
        ),
        place=r"test_gaussian_filter",
        says=r"DID NOT RAISE|assert",
        tests=FILTER,
    ),
    "waves of a series that count as one too few": Broken(
        "synthdp/ledger/composition.py",
        (
            (
                "sorted(amount, reverse=True)[:most]",
                "sorted(amount, reverse=True)[: most and most - 1]",
            ),
        ),
        caught=("test_nobody_loses_more_than_the_cap_in_any_waves[2]",),
        place=r"test_waves",
        says="assert",
        tests=("tests/privacy/test_waves.py",),
    ),
    "a search of a series that counts for nobody": Broken(
        "synthdp/ledger/composition.py",
        (("together([always, *zip", "together([NOTHING, *zip"),),
        caught=(
            "test_runs_of_one_wave_add_up_and_a_run_without_one_counts_for_everyone",
            "test_a_run_without_a_wave_must_not_be_forgotten",
        ),
        place=r"test_waves",
        says=r"DID NOT RAISE|assert",
        tests=("tests/privacy/test_waves.py",),
    ),
    "units that are held out count as if they moved nothing": Broken(
        "synthdp/privacy/events/kinds.py",
        (
            (
                "(*self._side(fitted, False), *self._side(self.units - fitted, True))",
                "(*self._side(fitted, False),)",
            ),
        ),
        caught=("test_both_sides_cost_no_less_than_their_joint_law",),
        place=r"test_holdout|test_scores",
        says=r"assert",
        tests=("tests/privacy/test_holdout.py",),
    ),
    "a replaced unit gains by the coin of an added one": Broken(
        "synthdp/privacy/events/kinds.py",
        (('claimed = rate > 0 and adjacency == "add_remove" and', "claimed = rate > 0 and"),),
        caught=("test_of_replaced_units_nothing_is_claimed",),
        place=r"test_holdout",
        says=r"assert",
        tests=("tests/privacy/test_holdout.py",),
    ),
    "new coins after a resume": Broken(
        OPENING,
        (("if coins is None:\n        coins = secrets", "if True:\n        coins = secrets"),),
        caught=("test_a_resumed_run_holds_out_the_same_units",),
        place=r"test_holdout_coins|test_noise_keys",
        says="with other coins",
        tests=("tests/release/test_holdout_coins.py",),
    ),
    "a key of who is held out beside the values": Broken(
        "synthdp/release/run_folder.py",
        (('int(self.holdout_key, 16) ^ int(other or "0", 16)', "int(self.holdout_key, 16)"),),
        caught=("test_neither_the_folder_nor_the_ledger_alone_tells_who_is_held_out",),
        place=r"test_holdout_coins",
        says=r"assert",
        tests=("tests/release/test_holdout_coins.py",),
    ),
    "noise keyed from what the run stores": Broken(
        OPENING,
        (
            (
                "holdout=job.folder.holdout_coins(coins))",
                "holdout=job.folder.holdout_coins(coins), noise=job.folder.holdout_coins(coins))",
            ),
        ),
        caught=("test_every_opening_of_a_run_draws_its_noise_anew",),
        place="test_noise_keys",
        says="Extra items in the left set",
    ),
    "visits of one date in the order of the file": Broken(
        "synthdp/data/visits.py",
        (
            (
                "order = np.lexsort((*more, *codes.T[::-1], when, owner))",
                "order = np.lexsort((when, owner))",
            ),
        ),
        caught=(
            "test_the_first_visits_are_kept_by_date_and_ties_by_levels",
            "test_one_person_more_adds_so_many_rows_and_moves_no_other[0-arrow]",
        ),
        place=r"test_linked|test_visits",
        says=r"assert",
        tests=("tests/privacy/test_linked.py", "tests/privacy/engines/test_visits.py"),
    ),
    "visits of one date in the order of a database": Broken(
        "synthdp/privacy/engines/statements.py",
        (("ORDER BY {', '.join(listed)}", "ORDER BY {listed[0]}"),),
        caught=(
            "test_the_views_are_those_in_memory",
            "test_one_person_more_adds_so_many_rows_and_moves_no_other[0-sql]",
        ),
        place=r"test_visits",
        says=r"assert",
        tests=("tests/privacy/engines/test_visits.py",),
    ),
    "of two rows of a person the first of the file": Broken(
        "synthdp/privacy/engines/on_visits.py",
        (
            (
                "np.lexsort((*self.numbers.T[::-1], *fields, *self.codes.T[::-1], self.units))",
                'np.argsort(self.units, kind="stable")',
            ),
        ),
        caught=(
            "test_two_rows_of_one_key_are_one_person_whatever_their_order",
            "test_one_person_more_adds_so_many_rows_and_moves_no_other[0-arrow]",
        ),
        place=r"test_linked|test_visits",
        says=r"assert",
        tests=("tests/privacy/test_linked.py", "tests/privacy/engines/test_visits.py"),
    ),
}
