import type { MachineOptions } from '../model/machine';
import { fitBrief, fitText } from '../model/fit';
import { size, usage } from '../model/units';
import { cardTitle, memoryLevel, type MemoryLevel } from '../model/wording';
import type { KernelFacts, Mode } from './facts';
import { trans } from '../model/translation';

/** The parts of the status bar item, as named in the settings. */
export const PARTS = ['card', 'mode', 'memory', 'fit'] as const;
export type Part = (typeof PARTS)[number];

/** Percentages of the card's memory at which its color changes. */
export type Thresholds = Pick<MachineOptions, 'memoryWarning' | 'memoryCritical'>;

/** The text, tooltip and color of the status bar item. */
export interface StatusView {
  readonly text: string;
  readonly tooltip: string;
  readonly level: MemoryLevel;
}

/** The content of the mode switch; an empty `value` means the library's default. */
export interface ModeView {
  readonly value: Mode | '';
  readonly labels: Readonly<Record<Mode, string>>;
  readonly tooltip: string;
  readonly pending: boolean;
}

/** Return the text, tooltip and color of the status bar item. */
export function statusView(
  facts: KernelFacts,
  parts: readonly Part[],
  thresholds: Thresholds
): StatusView {
  const shown: (string | null)[] = [
    parts.includes('card') && facts.card !== null ? cardTitle(facts.card) : 'HPU',
    parts.includes('mode') ? modeText(facts) : null,
    parts.includes('memory') ? memoryText(facts) : null,
    parts.includes('fit') && facts.fit !== null ? trans.__('Fit: %1', fitBrief(facts.fit)) : null
  ];
  return {
    text: shown.filter(part => part !== null).join(' · '),
    tooltip: statusTooltip(facts),
    level: memoryLevel(memoryShare(facts), thresholds)
  };
}

/** Return the mode switch's content, given a kernel's facts and the mode in the notebook's file. */
export function modeView(facts: KernelFacts | null, stored: Mode | null): ModeView {
  const loaded = facts?.loaded ?? null;
  const requested = facts?.requested ?? stored;
  const pending = loaded !== null && requested !== null && loaded !== requested;
  const label = (mode: Mode) =>
    pending && mode === requested ? trans.__('%1 → %2 after restart', loaded, mode) : mode;
  return {
    value: requested ?? loaded ?? '',
    labels: { eager: label('eager'), lazy: label('lazy') },
    tooltip: modeTooltip(loaded, requested),
    pending
  };
}

function modeText(facts: KernelFacts): string {
  const { loaded, requested } = facts;
  if (loaded === null) {
    return requested === null ? trans.__('torch not loaded') : trans.__('%1 requested', requested);
  }
  return requested === null || requested === loaded ? loaded : `${loaded} → ${requested}`;
}

function memoryText({ inUse, limit }: KernelFacts): string | null {
  return inUse === null || !limit ? null : usage(inUse, limit);
}

function memoryShare({ inUse, limit }: KernelFacts): number | null {
  return inUse === null || !limit ? null : inUse / limit;
}

function statusTooltip(facts: KernelFacts): string {
  const card = facts.card === null ? trans.__('no card yet') : cardTitle(facts.card);
  const { inUse, peak, limit } = facts;
  const lines = [
    facts.simulated
      ? trans.__('This kernel holds %1 (simulated)', card)
      : trans.__('This kernel holds %1', card),
    modeTooltip(facts.loaded, facts.requested)
  ];
  if (inUse !== null && limit) {
    const percent = ((100 * inUse) / limit).toFixed(1);
    const figures = [size(inUse), size(limit), percent] as const;
    lines.push(
      peak === null
        ? trans.__('Memory: %1 of %2 in use (%3 %)', ...figures)
        : trans.__(
            'Memory: %1 of %2 in use (%3 %), at most %4',
            ...figures,
            size(Math.max(inUse, peak))
          )
    );
  }
  if (facts.fit !== null) {
    lines.push(trans.__('Fit of %1', fitText(facts.fit)));
  }
  return [...lines, trans.__('Click to show all cards')].join('\n');
}

function modeTooltip(loaded: Mode | null, requested: Mode | null): string {
  if (loaded === null) {
    return requested === null
      ? trans.__('Execution mode: the library’s default, after torch is imported')
      : trans.__('Execution mode: %1, after torch is imported', requested);
  }
  return requested === null || requested === loaded
    ? trans.__('Execution mode: %1', loaded)
    : trans.__(
        'Execution mode: %1 is loaded, %2 requires a restart of the kernel',
        loaded,
        requested
      );
}
