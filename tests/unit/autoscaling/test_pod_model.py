from wainwright.autoscaling.pod_model import PodModel


def test_pods_become_ready_after_the_lag():
    model = PodModel(lag_s=10, ready=1).wished(2, 4)
    assert model.at(11).ready == 1
    assert model.at(12).ready == 4


def test_fewer_pods_are_fewer_at_once_and_those_that_come_go_first():
    model = PodModel(lag_s=10, ready=5).wished(0, 7).wished(2, 9).wished(4, 8)
    assert (model.ready, model.coming) == (5, ((10, 2), (12, 1)))
    model = model.wished(5, 3)
    assert (model.ready, model.coming) == (3, ())


def test_wishes_are_bounded():
    model = PodModel(lag_s=0, min_scale=2, max_scale=5)
    assert model.wished(0, 9).at(0).ready == 5
    assert model.wished(0, 0).at(0).ready == 2


def test_the_same_wish_again_adds_nothing():
    model = PodModel(lag_s=10).wished(0, 3)
    assert model.wished(2, 3) == model
