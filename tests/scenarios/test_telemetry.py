"""Every row of the telemetry tables is reported by a scenario, and no scenario reports what has no row.

The scenarios below are run by a pytest of their own, so that this does not depend on which tests run beside it. A row
whose report is taken out of the code, or that is new, fails here: give it a scenario, or take the row out as well.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from forwarder.loop import Counters
from forwarder.metrics import StateFigures, families
from spotwright.telemetry.tables import event_rows, log_line_rows, metric_rows, prometheus_rows
from tests.recording import RECORDING, ROOT

# File → tests, without "test_".
SCENARIOS = {
    "unit/adapters/aws/dynamodb/test_account_state.py": ("a_shared_table_that_is_gone_is_said_once",),
    "unit/composition/test_cluster_clients.py": ("while_eks_does_not_answer_what_it_said_before_is_used",),
    "forwarder/test_epoch.py": ("where_the_younger_forwarder_is_gone_the_state_of_the_other_is_read_again",),
    "forwarder/test_main.py": (
        "a_newer_image_runs_under_an_older_deployment",
        "a_watcher_that_ends_by_an_error_ends_the_process",
        "it_says_where_its_metrics_are_and_that_it_stopped",
        "where_its_address_is_taken_metrics_are_served_on_a_free_port",
        "a_pod_without_credentials_says_so_and_goes_on",
        "without_its_environment_it_does_not_start",
    ),
    "forwarder/test_outgoing.py": ("without_the_table_doorbells_are_sent",),
    "forwarder/test_sender.py": (
        "a_queue_that_does_not_answer_is_tried_a_bounded_number_of_times",
        "what_the_queue_refuses_is_sent_again_alone",
    ),
    "forwarder/test_sending.py": ("the_heart_beats_while_the_cluster_is_seen_and_survives_a_missing_table",),
    "forwarder/test_state_jobs.py": (
        "a_bucket_that_is_away_is_a_result",
        "an_unforeseen_error_is_a_result_and_the_next_state_is_written",
        "what_was_written_is_read",
    ),
    "forwarder/test_state_shipping.py": (
        "a_slow_store_delays_a_doorbell_by_a_second_and_another_follows_when_it_answers",
    ),
    "forwarder/test_watcher.py": (
        "an_api_server_that_is_away_is_asked_again",
        "that_nothing_happens_to_a_kind_is_no_failure",
    ),
    "functions/catalog/test_class_changes.py": ("a_deleted_class_waits_for_its_claims",),
    "functions/catalog/test_handler.py": (
        "a_class_that_aws_does_not_answer_about_is_named_and_counted",
        "a_message_that_is_not_ours_fails_alone",
        "the_handler_settles_what_its_doorbells_name",
    ),
    "functions/catalog/test_inputs.py": ("a_shifted_zone_has_nothing_to_buy_until_the_shift_ends",),
    "functions/test_alarms.py": ("it_rings_for_what_functions_write_after_its_minutes_and_no_earlier",),
    "functions/install/test_forwarder_pods.py": (
        "after_a_minute_the_installation_goes_on_without",
        "pods_without_are_deleted_until_one_has_them",
    ),
    "functions/install/test_handler.py": (
        "a_cluster_that_is_ready_is_looked_at_and_nothing_else",
        "a_deletion_fails_once_while_claims_are_left_and_never_for_a_cluster_that_does_not_answer",
        "a_failure_is_answered_with_its_reason",
        "create_update_and_delete_answer_with_one_physical_id",
    ),
    "functions/test_interrupt.py": ("a_notice_that_cannot_be_written_comes_back",),
    "functions/test_interrupt_clusters.py": ("while_ec2_does_not_say_every_cluster_is_told",),
    "functions/test_interrupt_malformed.py": ("a_change_that_begins_nothing_is_named_and_counted",),
    "functions/test_lifecycle.py": (
        "a_decision_that_cannot_be_read_is_dropped_and_planned_anew",
        "without_the_table_a_decision_is_taken_once_more_then_the_message_returns_and_nothing_is_bought",
    ),
    "functions/test_outages.py": ("the_same_event_again_changes_no_row_and_no_node",),
    "scenarios/lifecycle/provisioning/test_failed_plans.py": ("requests_of_a_pause_are_rung_for_once_at_its_end",),
    "functions/test_provision.py": (
        "a_node_that_cannot_be_read_has_an_event_that_names_the_field",
        "the_handler_says_and_counts_which_nodes_a_ceiling_holds_back",
        "the_handler_says_and_counts_which_pods_have_no_place",
        "with_little_time_left_a_smaller_decision_is_made_and_the_rest_follows",
    ),
    "unit/test_sqs_batch.py": ("a_process_whose_credentials_have_expired_ends_after_its_batch",),
    "scenarios/lifecycle/disruption/test_breaker.py": ("an_interruption_goes_on_while_it_is_open",),
    "scenarios/lifecycle/disruption/test_consolidation.py": (
        "a_node_too_large_is_replaced_with_a_smaller_one_before_it_goes",
        "a_replacement_that_never_comes_ends_the_command_and_the_node_stays",
    ),
    "scenarios/lifecycle/disruption/test_drift.py": (
        "a_claim_that_is_not_launched_or_is_leaving_is_left_alone",
        "one_that_is_in_other_hands_does_not_keep_the_others",
    ),
    "scenarios/lifecycle/disruption/test_emptiness.py": (
        "a_closed_budget_keeps_everything",
        "a_pod_whose_annotation_is_invalid_is_told_once",
        "a_pod_that_binds_after_the_commit_saves_its_node",
        "never_is_never",
    ),
    "scenarios/lifecycle/disruption/test_interruption.py": (
        "where_the_pool_ignores_them_a_rebalance_recommendation_is_an_event_only",
        "a_replacement_without_capacity_is_planned_again",
        "an_instance_that_ends_takes_its_claim_along",
        "notices_of_every_kind_at_once_replace_every_node_once",
    ),
    "scenarios/lifecycle/disruption/test_interruption_deadlines.py": (
        "a_pod_that_cannot_stop_in_time_is_said_with_the_time_it_needs_and_has",
    ),
    "scenarios/lifecycle/disruption/test_interruptions_together.py": (
        "one_node_that_cannot_be_tainted_does_not_keep_the_others",
        "what_there_is_no_time_for_is_rung_again_and_notices_are_handled_first",
    ),
    "scenarios/lifecycle/disruption/test_instance_status.py": (
        "a_scheduled_event_drains_the_node_as_its_message_would",
        "volumes_in_trouble_are_said_and_the_node_is_kept",
    ),
    "scenarios/lifecycle/disruption/test_scheduled_events.py": (
        "an_event_that_ec2_called_off_removes_nothing",
        "an_event_that_ec2_postponed_is_waited_for_until_its_new_last_hour",
    ),
    "scenarios/lifecycle/disruption/test_rebalance.py": (
        "the_node_is_replaced_in_a_better_pool_before_it_goes_and_the_decision_says_why",
    ),
    "scenarios/lifecycle/disruption/test_other_provisioner.py": (
        "while_karpenter_runs_nothing_is_launched_or_disrupted_and_it_goes_on_after_that",
    ),
    "scenarios/lifecycle/disruption/test_rollouts.py": (
        "a_replacement_that_is_not_initialized_stops_it_and_another_canary_follows",
    ),
    "scenarios/lifecycle/disruption/test_node_repair.py": (
        "too_many_unhealthy_nodes_are_all_kept_and_it_is_said_until_fewer_are",
    ),
    "scenarios/lifecycle/faults/test_concurrent_workers.py": (
        "a_decision_that_nobody_acted_on_in_time_is_planned_again",
    ),
    "scenarios/lifecycle/faults/test_lost_instances.py": ("a_lost_instance_ends_its_claim_and_its_pods_run_elsewhere",),
    "scenarios/lifecycle/launch/test_large_decisions.py": ("a_nodepool_says_that_a_launch_is_too_large_to_be_stored",),
    "scenarios/lifecycle/launch/test_nominations.py": (
        "a_pod_whose_place_another_got_is_planned_again_within_seconds",
        "where_nominating_fails_the_node_is_let_go",
    ),
    "scenarios/lifecycle/launch/test_pod_to_node.py": (
        "a_node_that_joins_without_the_unregistered_taint_is_registered_with_an_event",
        "a_node_that_is_smaller_than_expected_is_said_and_kept",
        "a_refusal_that_stays_ends_the_claim_after_five_minutes",
    ),
    "scenarios/lifecycle/test_cluster_state.py": ("a_fresh_state_is_read_instead_of_lists",),
    "scenarios/lifecycle/test_story.py": (
        "a_consolidation_that_a_pod_forbids_meanwhile_is_rejected_with_the_reason",
        "a_node_and_the_one_that_replaces_it_tell_both_sides_of_a_consolidation",
        "until_when_a_pod_keeps_its_node_is_told_and_when_that_has_ended",
    ),
    "scenarios/lifecycle/test_nodepool_status.py": ("where_nobody_rings_the_poll_counts",),
    "scenarios/lifecycle/launch/test_taken_names.py": ("a_taken_name_costs_one_place_which_is_planned_again",),
    "scenarios/lifecycle/provisioning/test_nodeoverlays.py": ("an_overlay_says_whether_it_counts",),
    "scenarios/lifecycle/provisioning/test_planner_at_work.py": (
        "evaluations_list_a_large_cluster_for_a_twentieth_of_the_time",
    ),
    "scenarios/lifecycle/provisioning/test_reservations.py": (
        "a_node_whose_reservation_ended_runs_on_as_on_demand",
        "a_reservation_that_takes_an_instance_back_is_left_alone",
    ),
    "scenarios/lifecycle/provisioning/test_static_capacity.py": ("a_pool_whose_requirements_leave_nothing_is_told_so",),
    "scenarios/lifecycle/termination/test_bad_annotations.py": (
        "a_termination_time_that_is_none_is_said_and_the_grace_period_counts",
    ),
    "scenarios/lifecycle/termination/test_drained_pods.py": (
        "the_termination_grace_period_overrules_budget_and_annotation",
    ),
    "scenarios/lifecycle/termination/test_drained_volumes.py": ("volumes_are_waited_for",),
    "scenarios/lifecycle/termination/test_rate_limits.py": (
        "a_launch_that_is_sent_twice_is_counted_once",
        "one_that_may_not_be_ended_does_not_keep_the_others",
        "surplus_waits_for_its_turn_in_its_row",
    ),
    "scenarios/lifecycle/termination/test_shared_instances.py": (
        "a_second_node_of_a_claim_is_reported_and_goes_with_the_instance",
        "two_claims_of_one_instance_are_reported_and_a_deleted_node_costs_neither",
    ),
    "scenarios/lifecycle/termination/test_termination.py": (
        "an_expired_claim_goes_by_itself",
        "deleting_a_node_deletes_its_claim",
    ),
}


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of the rows that the scenarios report."""
    path = tmp_path_factory.mktemp("telemetry") / "recording.json"
    tests = [f"tests/{file}::test_{name}" for file, names in SCENARIOS.items() for name in names]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.recording", "-p", "no:cacheprovider"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [*command, "--log-level=DEBUG", *tests],
        cwd=ROOT, env=environment | {RECORDING: str(path), "POWERTOOLS_LOG_LEVEL": "DEBUG"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    return set().union(*json.loads(Path(path).read_text()).values())


def test_every_row_is_reported(reported: set[str]) -> None:
    counted = {name for name, metric in metric_rows().items() if metric.counted}
    assert (event_rows() | log_line_rows() | metric_rows()).keys() - counted - reported == set()


def test_a_metric_that_counts_lines_counts_lines_that_are_reported(reported: set[str]) -> None:
    names = {line.message: name for name, line in log_line_rows().items()}
    lines = {names[line.message] for metric in metric_rows().values() for line in metric.counted}
    assert lines <= reported


def test_nothing_else_is_reported(reported: set[str]) -> None:
    assert sorted(name for name in reported if name.startswith("unknown")) == []


def test_the_forwarders_page_has_the_metrics_of_the_table_and_no_other() -> None:
    counters = Counters(sent={"provision": 1})
    page = families([], [], counters, StateFigures(), fresh=True, silent_seconds={"Pod": 1.0})
    assert {metric.name: metric.type for metric in page} == {row.name: row.kind for row in prometheus_rows().values()}
