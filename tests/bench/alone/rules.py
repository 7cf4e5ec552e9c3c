"""What a step by each update rule takes, compared with one by SGD.

`bench train --rules` runs the rules' steps in turn in one process, S L A M S L A M, and takes each
step's ratio to SGD's in the same turn. Rules are for large batches: what an update costs in
addition does not grow with the rows, so the share that it has of a step depends on the batch."""
import statistics

import contenders
import machine

TITLE = 'Steps by each update rule, 1 process × 2 threads'
COLUMNS = ['model', 'batch', 'precision', 'rule', 'step ms', 'update ms', 'of an SGD step',
           'target']
#        batches, side of the images, measured steps of each in a round
CASES = {'resnet50': ((8, 64), 224, 3)}
TARGETS = {'lars': '1.02', 'muon': '1.10'}


def cases(asked):
    for model, (batches, image, steps) in CASES.items():
        if asked['models'] and model not in asked['models']:
            continue
        for batch in batches:
            for precision in asked['precisions']:
                yield contenders.Case(model, batch, image, precision, asked['steps'] or steps)


def row(case, rounds, rule):
    """One line of the table: medians over the rounds of medians over the steps."""
    def middle(figure):
        ones = [one if rule == 'sgd' else one['rules'][rule] for one in rounds]
        return statistics.median(one[figure] for one in ones)

    return {'model': case.model, 'batch': str(case.batch), 'precision': case.precision,
            'rule': rule, 'step ms': f'{middle("step_ms"):.1f}',
            'update ms': f'{middle("update_ms"):.1f}',
            'of an SGD step': '' if rule == 'sgd' else f'{middle("ratio"):.3f}',
            'target': TARGETS.get(rule, '')}


def measure(asked, report):
    for case in cases(asked):
        rounds = []
        for _ in range(asked['rounds']):
            load = machine.OtherLoad()
            figures = contenders.lockstep(case, 1, '--rules', '--warm-up', 1)
            figures['other_load'] = round(load.cores(), 2)
            report['other_load'].append(figures['other_load'])
            contenders.progress(f'{case.model} {case.batch} {case.precision} ' + '  '.join(
                f'{rule} {one["ratio"]:.3f}' for rule, one in figures['rules'].items()))
            rounds.append(figures)
        report['rounds'] += rounds
        report['rows'] += [row(case, rounds, rule) for rule in ('sgd', *rounds[0]['rules'])]
