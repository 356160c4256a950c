// Formats numbers in the same way as the Python package.

import { trans } from './translation';

const BINARY: readonly [number, string][] = [
  [2 ** 40, 'TiB'],
  [2 ** 30, 'GiB'],
  [2 ** 20, 'MiB'],
  [2 ** 10, 'KiB']
];

function threeDigits(value: number): string {
  if (value >= 99.95) {
    return value.toFixed(0);
  }
  return value.toFixed(value >= 9.995 ? 1 : 2);
}

/** Format a number of bytes: `14.2 MiB`. */
export function size(bytes: number): string {
  for (const [scale, unit] of BINARY) {
    // 1023.9996 KiB must not become "1024 KiB".
    if (bytes >= scale * 0.9995) {
      return `${threeDigits(bytes / scale)} ${unit}`;
    }
  }
  return `${Math.round(bytes)} B`;
}

/** Format the memory in use and its total: `12.3 / 96 GiB`. */
export function usage(used: number, total: number): string {
  const whole = capacity(total);
  const part = size(used);
  const [number, unit] = part.split(' ');
  // Omit the first unit if both are the same.
  return whole.endsWith(` ${unit}`) ? `${number} / ${whole}` : `${part} / ${whole}`;
}

/** Format a part as a percentage of the whole: `45 %` or `0.01 %`. */
export function share(part: number, whole: number): string {
  const percent = (100 * part) / whole;
  if (percent > 0 && percent < 0.005) {
    return trans.__('under 0.01 %');
  }
  return `${percent.toFixed(percent >= 9.95 || percent === 0 ? 0 : percent >= 0.095 ? 1 : 2)} %`;
}

/** Format a memory size without trailing zeros: `96 GiB` or `1.5 GiB`. */
export function capacity(bytes: number): string {
  return size(bytes)
    .replace(/(\.\d*?)0+ /, '$1 ')
    .replace('. ', ' ');
}

/** Format the peak memory usage and its share of the card: `12 MiB, 0.01 % of 96 GiB`. */
export function peak(bytes: number, total: number | null): string {
  return total
    ? trans.__('%1, %2 of %3', capacity(bytes), share(bytes, total), capacity(total))
    : capacity(bytes);
}

const PARTS = [1e-4, 1e-3, 1e-2, 1e-1];

/**
 * Return the amount of memory at the upper edge of a small chart: all of a card's memory, a tenth
 * of it, a hundredth of it, and so on. A minimum ensures that a few bytes do not look
 * like a full card.
 */
export function upperEdge(highest: number, total: number | null): number {
  if (!total) {
    return highest || 1;
  }
  const part = PARTS.find(share => 1.25 * highest <= share * total) ?? 1;
  return part * total;
}

/** Format a rate: `412 steps/s` or `1,230 steps/s`. */
export function rate(perSecond: number): string {
  if (perSecond >= 999.5) {
    const rounded = Number(perSecond.toPrecision(3));
    return trans.__('%1 steps/s', rounded.toLocaleString('en'));
  }
  return trans.__('%1 steps/s', threeDigits(perSecond));
}

/** Format an estimated time with a suitable precision: `40 s`, `2 min 5 s` or `42 min`. */
export function rough(seconds: number): string {
  if (seconds < 59.5) {
    return trans.__('%1 s', Math.max(1, Math.round(seconds)));
  }
  const whole = Math.round(seconds);
  const minutes = Math.floor(whole / 60);
  if (minutes >= 60) {
    return trans.__('%1 h %2 min', Math.floor(minutes / 60), minutes % 60);
  }
  return minutes < 10 ? trans.__('%1 min %2 s', minutes, whole % 60) : trans.__('%1 min', minutes);
}

/** Format a percentage: `7 %`. */
export function percent(value: number): string {
  return `${Math.round(value)} %`;
}

/** Format a time span in seconds: `10 min`. */
export function span(seconds: number): string {
  if (seconds < 90) {
    return trans.__('%1 s', Math.round(seconds));
  }
  const minutes = seconds / 60;
  return trans.__('%1 min', minutes < 10 ? Number(minutes.toFixed(1)) : Math.round(minutes));
}
