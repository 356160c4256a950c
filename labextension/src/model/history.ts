import { METRICS } from './snapshot';
import type { Measurement, Metric, PastSamples, Snapshot } from './snapshot';

/** A card's samples, oldest first; missing values are NaN. The arrays are short-lived views. */
export interface Series extends Readonly<Record<Metric, Float64Array>> {
  readonly time: Float64Array;
  /** Number of seconds that a time axis should show; it grows to the length of the history. */
  readonly span: number;
}

/** Minimum length of a time axis, in seconds. */
const SHORTEST_SPAN = 60;

/**
 * A ring buffer of numbers. Each number is written twice, `capacity` places apart, so that the
 * newest `count` numbers are always contiguous and need not be copied to be read.
 */
class Ring {
  constructor(readonly capacity: number) {
    this._values = new Float64Array(2 * capacity).fill(NaN);
  }

  write(position: number, value: number): void {
    this._values[position] = value;
    this._values[position + this.capacity] = value;
  }

  view(position: number, count: number): Float64Array {
    const end = position + this.capacity;
    return this._values.subarray(end - count, end);
  }

  private readonly _values: Float64Array;
}

type CardRings = Record<Metric, Ring>;
type Write = (moduleId: number, metric: Metric, value: Measurement) => void;

const NOTHING = new Float64Array(0);

/**
 * The last few minutes of all cards, in memory that is allocated only once.
 *
 * The history keeps at most one sample per `interval`, even if the server samples faster for other
 * clients. If samples are missing for more than three intervals, a row of NaN marks the gap, so
 * that lines in charts are interrupted.
 */
export class History {
  /** `length` and `interval` are in seconds. */
  constructor(length: number, interval: number) {
    this.length = length;
    this.interval = interval;
    this.capacity = Math.ceil(length / interval) + 2;
    this._time = new Ring(this.capacity);
  }

  readonly length: number;
  readonly interval: number;
  readonly capacity: number;

  /** The current number of samples. */
  get count(): number {
    return this._count;
  }

  /** The time of the newest sample, or -Infinity if there are no samples. */
  get latest(): number {
    return this._latest;
  }

  /** Add a sample, unless it arrives before the interval is over. */
  push(snapshot: Snapshot): void {
    if (snapshot.time < this._latest - 3 * this.interval) {
      // The server's clock has been set back, but times must increase.
      this._count = 0;
      this._latest = -Infinity;
    }
    this._append(snapshot.time, write => {
      for (const card of snapshot.cards) {
        for (const metric of METRICS) {
          write(card.module_id, metric, card[metric]);
        }
      }
    });
  }

  /** Add past samples that are newer than the latest sample. */
  fill(past: PastSamples): void {
    past.time.forEach((time, row) => {
      this._append(time, write => {
        for (const [moduleId, columns] of Object.entries(past.cards)) {
          for (const metric of METRICS) {
            write(Number(moduleId), metric, columns[metric]?.[row] ?? null);
          }
        }
      });
    });
  }

  /** Return a card's samples from the last `length` seconds. */
  series(moduleId: number): Series {
    const rings = this._cards.get(moduleId);
    const count = this._recent();
    const view = (ring: Ring | undefined) => ring?.view(this._position, count) ?? NOTHING;
    const time = rings ? view(this._time) : NOTHING;
    const age = time.length > 0 ? this._latest - time[0]! : 0;
    return {
      time,
      span: Math.min(Math.max(age, SHORTEST_SPAN), this.length),
      memory_used: view(rings?.memory_used),
      utilization: view(rings?.utilization),
      temperature: view(rings?.temperature),
      power: view(rings?.power)
    };
  }

  /** Return a history with the same samples but a different length or interval. */
  resized(length: number, interval: number): History {
    const other = new History(length, interval);
    const time = Array.from(this._time.view(this._position, this._count));
    const cards: Record<string, Partial<Record<Metric, Measurement[]>>> = {};
    for (const [moduleId, rings] of this._cards) {
      const columns: Partial<Record<Metric, Measurement[]>> = {};
      for (const metric of METRICS) {
        const values = rings[metric].view(this._position, this._count);
        columns[metric] = Array.from(values, value => (isNaN(value) ? null : value));
      }
      cards[moduleId] = columns;
    }
    other.fill({ time, cards });
    return other;
  }

  private _append(time: number, samples: (write: Write) => void): void {
    // The timers of the client and server are inexact, so allow 10 % less.
    if (!(time >= this._latest + 0.9 * this.interval)) {
      return;
    }
    if (this._count > 0 && time - this._latest > 3 * this.interval) {
      this._row(this._latest + this.interval);
    }
    this._row(time);
    const row = (this._position - 1 + this.capacity) % this.capacity;
    samples((moduleId, metric, value) => {
      this._rings(moduleId)[metric].write(row, value ?? NaN);
    });
    this._latest = time;
  }

  /** Start a row; values are missing until they are written. */
  private _row(time: number): void {
    this._time.write(this._position, time);
    for (const rings of this._cards.values()) {
      for (const metric of METRICS) {
        rings[metric].write(this._position, NaN);
      }
    }
    this._position = (this._position + 1) % this.capacity;
    this._count = Math.min(this._count + 1, this.capacity);
  }

  private _rings(moduleId: number): CardRings {
    let rings = this._cards.get(moduleId);
    if (!rings) {
      const ring = () => new Ring(this.capacity);
      rings = { memory_used: ring(), utilization: ring(), temperature: ring(), power: ring() };
      this._cards.set(moduleId, rings);
    }
    return rings;
  }

  /** Return the number of samples that are no older than `length` seconds. */
  private _recent(): number {
    const time = this._time.view(this._position, this._count);
    const oldest = this._latest - this.length;
    let first = 0;
    while (first < time.length && time[first]! < oldest) {
      first += 1;
    }
    return time.length - first;
  }

  private readonly _time: Ring;
  private readonly _cards = new Map<number, CardRings>();
  private _position = 0;
  private _count = 0;
  private _latest = -Infinity;
}
