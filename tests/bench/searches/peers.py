"""peers.py CURVES SEEDS: what other programs' early stopping makes of recorded curves.

For each program and seed a line of JSON: the curve that it chose, and all epochs that it took. One
trial after the other, in the same order as lockstep's.
"""
import json
import logging
import math
import sys
import tempfile
import warnings

import curves as recorded


def optuna_by(pruner, curves, seed):
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    places, epochs = recorded.order(len(curves), seed), 0

    def train(trial):
        nonlocal epochs
        curve = curves[places[trial.number]]
        for epoch, score in enumerate(curve, 1):
            epochs += 1
            trial.report(score, epoch)
            if math.isnan(score) or trial.should_prune():
                raise optuna.TrialPruned
        return curve[-1]

    study = optuna.create_study(study_name=str(seed), direction='maximize', pruner=pruner(optuna),
                                sampler=optuna.samplers.RandomSampler(seed))
    study.optimize(train, n_trials=len(curves))
    return places[study.best_trial.number], epochs


def deephyper(curves, seed):
    from deephyper.evaluator import Evaluator
    from deephyper.hpo import HpProblem, RandomSearch
    from deephyper.stopper import SuccessiveHalvingStopper

    places, epochs = iter(recorded.order(len(curves), seed)), 0

    class InOrder(RandomSearch):
        def _ask(self, n=1):
            return [{'curve': next(places)} for _ in range(n)]

    async def train(job):
        nonlocal epochs
        for epoch, score in enumerate(curves[job.parameters['curve']], 1):
            epochs += 1
            if math.isnan(score):
                return 'F_diverged'
            job.record(epoch, score)
            if job.stopped():
                break
        return job.objective

    problem = HpProblem()
    problem.add_hyperparameter((0, len(curves) - 1), 'curve')
    with tempfile.TemporaryDirectory() as folder:
        search = InOrder(problem, random_state=seed, log_dir=folder,
                         stopper=SuccessiveHalvingStopper(max_steps=len(curves[0]),
                                                          reduction_factor=3))
        evaluator = Evaluator.create(train, method='serial', method_kwargs={'num_workers': 1})
        table = search.search(evaluator, max_evals=len(curves))
    scores = table['objective'].map(lambda text: float(text) if str(text)[0] != 'F' else -1.0)
    return int(table['p:curve'][scores.idxmax()]), epochs


PROGRAMS = {
    'Optuna, successive halving': lambda curves, seed: optuna_by(
        lambda optuna: optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3),
        curves, seed),
    'Optuna, Hyperband': lambda curves, seed: optuna_by(
        lambda optuna: optuna.pruners.HyperbandPruner(
            min_resource=1, max_resource=len(curves[0]), reduction_factor=3), curves, seed),
    'DeepHyper, successive halving': deephyper,
}


def main(file, seeds):
    warnings.filterwarnings('ignore')
    logging.disable(logging.WARNING)
    curves = recorded.read(file)
    for name, search in PROGRAMS.items():
        for seed in range(1, seeds + 1):
            chosen, epochs = search(curves, seed)
            print(json.dumps({'program': name, 'seed': seed, 'chosen': chosen, 'epochs': epochs}),
                  flush=True)


main(sys.argv[1], int(sys.argv[2]))
