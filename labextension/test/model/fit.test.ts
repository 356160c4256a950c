import { describe, expect, it } from 'vitest';

import { fitBrief, fitText, parseFit } from '../../src/model/fit';
import { fit } from './samples';

const UNKNOWN = fit({
  epochs: null,
  batch: 0,
  share: null,
  remaining: null,
  rate: null,
  loss: null
});

describe('parseFit', () => {
  it('reads a fit and ignores unknown keys', () => {
    expect(parseFit({ ...fit(), more: 1 })).toMatchObject(fit());
    expect(parseFit({ ...UNKNOWN, loss: 'NaN' })).toMatchObject({ loss: 'NaN', rate: null });
  });

  it.each([
    null,
    undefined,
    'fit',
    [],
    {},
    { ...fit(), model: null },
    { ...fit(), phase: 'resting' },
    { ...fit(), epoch: '3' },
    { ...fit(), share: undefined },
    { ...fit(), batch: null },
    { ...fit(), loss: [1] },
    { ...fit(), broken: 7 }
  ])('refuses %j', value => {
    expect(parseFit(value)).toBeNull();
  });
});

describe('a fit in words', () => {
  it.each([
    [
      fit(),
      '27 %, 40 s left',
      'DigitReader: epoch 3 of 10, 42.0 steps/s, loss 0.231, about 40 s left'
    ],
    [fit({ share: 0.9999, remaining: 0.2 }), '99 %, 1 s left', null],
    [fit({ remaining: 3725 }), '27 %, 1 h 2 min left', null],
    [fit({ remaining: null }), '27 %', null],
    [UNKNOWN, 'epoch 3', 'DigitReader: epoch 3'],
    [{ ...UNKNOWN, batch: 120 }, 'epoch 3, batch 120', 'DigitReader: epoch 3, batch 120'],
    [{ ...UNKNOWN, epoch: null, phase: 'starting' }, 'starting', 'DigitReader: starting'],
    [{ ...UNKNOWN, epoch: null, phase: 'validating' }, 'validating', null],
    [fit({ phase: 'stopping', rate: null }), 'stopping', null],
    [
      fit({ phase: 'validating', loss: 1e-7, loss_name: 'train/ce' }),
      '27 %, 40 s left',
      'DigitReader: validating, epoch 3 of 10, 42.0 steps/s, train/ce 1e-7, about 40 s left'
    ],
    [{ ...UNKNOWN, loss: 'inf' }, 'epoch 3', 'DigitReader: epoch 3, loss inf'],
    [
      { ...UNKNOWN, loss: 'NaN', broken: 'loss NaN since step 31' },
      'epoch 3',
      'DigitReader: epoch 3, loss NaN since step 31'
    ]
  ] as const)('describes case %#: %j', (told, brief, text) => {
    expect(fitBrief(told)).toBe(brief);
    if (text !== null) {
      expect(fitText(told)).toBe(text);
    }
  });
});
