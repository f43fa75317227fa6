"""The recursion guard's arithmetic."""

from local.aws.functions.recursion import LONGEST_CHAIN, is_loop, lineage_counts, trace_header

ONE = "arn:aws:lambda:ap-northeast-2:123456789012:function:one"
TWO = "arn:aws:lambda:ap-northeast-2:123456789012:function:two"


def test_each_passage_counts_for_its_function_alone() -> None:
    trace = trace_header([trace_header([trace_header([], ONE)], TWO)], ONE)
    assert sorted(lineage_counts(trace).values()) == [1, 2]


def test_the_longest_chain_of_a_batch_counts() -> None:
    long = trace_header([trace_header([trace_header([], ONE)], ONE)], ONE)
    assert max(lineage_counts(trace_header([long, "", trace_header([], ONE)], ONE)).values()) == 4


def test_sixteen_passages_are_the_limit_of_each_function() -> None:
    trace = ""
    for _ in range(LONGEST_CHAIN):
        assert not is_loop(trace, ONE)
        trace = trace_header([trace], ONE)
    assert is_loop(trace, ONE)
    assert is_loop(trace, f"{ONE}:live"), "an alias is the same function"
    assert not is_loop(trace, TWO)


def test_foreign_headers_count_nothing() -> None:
    assert lineage_counts("") == {}
    assert lineage_counts("Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1") == {}
    assert lineage_counts("Lineage=abc:x,:3,def") == {}
