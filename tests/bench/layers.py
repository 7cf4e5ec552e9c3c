"""Where a training step's time goes: each region of the tape, and its convolutions alone."""
import statistics

import contenders
import machine
import steps

TITLE = 'A step by regions, 1 process × 2 threads'
COLUMNS = ['model', 'precision', 'region', 'forward ms', 'forward convolutions', 'backward ms',
           'backward convolutions']
BACKWARD = ' backward'


def join(tape, floor):
    """[region, forward, its convolutions, backward, its convolutions] of one round, ms."""
    times = {step['name']: step['ms'] for step in tape}
    alone = {layer['name']: layer for layer in floor}
    table = []
    for region in [name for name in times if not name.endswith(BACKWARD)]:
        convolutions = [alone[name] for name in region.split('+') if name in alone]
        table.append([region, times[region],
                      sum(c['forward_ms'] for c in convolutions),
                      times.get(region + BACKWARD, 0.0),
                      sum(c['weight_gradient_ms'] + c.get('data_gradient_ms', 0.0)
                          for c in convolutions)])
    return table


def rows(case, rounds):
    """Medians over the rounds, and their sum."""
    table = [[lines[0][0], *(statistics.median(column) for column in zip(*(l[1:] for l in lines)))]
             for lines in zip(*rounds)]
    table.append(['sum', *(sum(column) for column in zip(*(line[1:] for line in table)))])
    for line in table:
        yield {'model': case.model, 'precision': case.precision,
               **dict(zip(COLUMNS[2:], [line[0], *(f'{ms:.2f}' for ms in line[1:])]))}


def measure(asked, report):
    for case in steps.cases(asked):
        rounds = []
        for _ in range(asked['rounds']):
            load = machine.OtherLoad()
            tape = contenders.lockstep(case, 1, '--layers')['tape']
            floor = contenders.conv_floor(case)['layers']
            report['other_load'].append(round(load.cores(), 2))
            rounds.append(join(tape, floor))
            contenders.progress(f'{case.model} {case.precision} layers')
        report['rounds'].append({'model': case.model, 'precision': case.precision,
                                 'regions': rounds})
        report['rows'] += rows(case, rounds)
