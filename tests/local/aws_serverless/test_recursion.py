"""The recursion guard's arithmetic."""

from local.aws.recursion import LONGEST_CHAIN, entering, hops, is_loop

ONE = "arn:aws:lambda:ap-northeast-2:123456789012:function:one"
TWO = "arn:aws:lambda:ap-northeast-2:123456789012:function:two"


def test_each_passage_counts_for_its_function_alone() -> None:
    trace = entering([entering([entering([], ONE)], TWO)], ONE)
    assert sorted(hops(trace).values()) == [1, 2]


def test_the_longest_chain_of_a_batch_counts() -> None:
    long = entering([entering([entering([], ONE)], ONE)], ONE)
    assert max(hops(entering([long, "", entering([], ONE)], ONE)).values()) == 4


def test_sixteen_passages_are_the_limit_of_each_function() -> None:
    trace = ""
    for _ in range(LONGEST_CHAIN):
        assert not is_loop(trace, ONE)
        trace = entering([trace], ONE)
    assert is_loop(trace, ONE)
    assert is_loop(trace, f"{ONE}:live"), "an alias is the same function"
    assert not is_loop(trace, TWO)


def test_foreign_headers_count_nothing() -> None:
    assert hops("") == {}
    assert hops("Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1") == {}
    assert hops("Lineage=abc:x,:3,def") == {}
