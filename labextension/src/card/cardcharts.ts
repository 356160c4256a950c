import type { Series } from '../model/history';
import type { Machine } from '../model/machine';
import type { Metric } from '../model/snapshot';
import {
  cardTitle,
  holderName,
  memoryText,
  notice,
  occupancy,
  productName
} from '../model/wording';
import { element, setText } from '../view/dom';
import { cardIcon } from '../view/icons';
import { NoticeBox } from '../view/notice';
import { Chart } from './chart';
import { Fits } from './fits';
import type { StopFit } from './fits';
import { CHARTS } from './metrics';
import { ZoomView } from '../view/zoomview';
import { trans } from '../model/translation';

// Pixels.
const HEADINGS = 70;
const CHART_HEAD = 34;
const LOWEST_CHART = 130;
const HIGHEST_CHART = 300;

/** The history of a card: charts that share a time axis, cursor and zoom. */
export class CardCharts extends ZoomView {
  constructor(
    machine: Machine,
    readonly moduleId: number,
    stopFit: StopFit
  ) {
    super(machine);
    this.id = `hpu_magic-card-${moduleId}`;
    this.addClass('hpu-CardCharts');
    this.title.label = cardTitle(moduleId);
    this.title.caption = trans.__('History of %1', cardTitle(moduleId));
    this.title.icon = cardIcon;
    this._notice = new NoticeBox(() => machine.retry());
    this._fits = new Fits(stopFit);
    const parts = [this._heading, this._notice.node, this._fits.node, this._empty, this._charts];
    this.node.append(...parts);
  }

  /** Whether the charts are paused; the machine keeps recording samples. */
  get paused(): boolean {
    return this._frozen !== null;
  }
  set paused(paused: boolean) {
    if (paused !== this.paused) {
      this._frozen = paused ? this._copy() : null;
      this.changed();
    }
  }

  /** Apply the colors of a new theme. */
  restyle(): void {
    this._shown.forEach(chart => chart.restyle());
    this.request();
  }

  override dispose(): void {
    this._shown.forEach(chart => chart.dispose());
    this._shown.clear();
    super.dispose();
  }

  protected resized(): void {
    this._fit();
    this.request();
  }

  protected draw(): void {
    this._describe();
    const series = this._frozen ?? this.machine.history.series(this.moduleId);
    const { time, span } = series;
    const newest = time[time.length - 1] ?? Date.now() / 1000;
    this.whole = { min: newest - span, max: newest };
    this.range = this.zoom ?? this.whole;
    const total = this.machine.card(this.moduleId)?.memory_total ?? null;
    for (const kind of CHARTS) {
      const values = series[kind.metric];
      if (!this._shown.has(kind.metric) && values.some(value => !isNaN(value))) {
        this._add(kind.metric);
      }
      this._shown.get(kind.metric)?.draw(time, values, total);
    }
    this._empty.hidden = this._shown.size > 0;
  }

  /** Show the card's name, its current state and any problems. */
  private _describe(): void {
    const { snapshot, missed, connection } = this.machine;
    const problem = notice(connection, snapshot, missed);
    this._notice.show(problem);
    const card = this.machine.card(this.moduleId);
    if (this._fits.show(card)) {
      this._fit();
    }
    setText(this._number, cardTitle(this.moduleId));
    if (card) {
      const product = card.simulated
        ? trans.__('simulated %1', productName(card))
        : productName(card);
      const holders = card.holders.map(holderName).join(', ');
      const free = occupancy(card) === 'free' ? trans.__('free') : '';
      const parts = [product, memoryText(card), holders, free];
      setText(this._summary, parts.filter(part => part !== '').join(' · '));
    } else {
      setText(this._summary, '');
    }
    const gone = snapshot !== null && snapshot.cards.length > 0 && !card;
    setText(
      this._empty,
      gone
        ? trans.__('The machine has no card with this number.')
        : (card?.error ?? trans.__('No history yet.'))
    );
  }

  private _add(metric: Metric): void {
    const kind = CHARTS.find(candidate => candidate.metric === metric)!;
    const chart = new Chart(kind, {
      syncKey: this.id,
      range: () => this.range,
      zoom: range => this.zoomTo(range),
      reset: () => this.zoomTo(null)
    });
    this._shown.set(metric, chart);
    // The order of the charts must not depend on which metric received a value first.
    const order = CHARTS.filter(({ metric }) => this._shown.has(metric));
    this._charts.append(...order.map(({ metric }) => this._shown.get(metric)!.node));
    this._fit();
  }

  private _fit(): void {
    const width = this._charts.clientWidth;
    // Fit all charts on the page as long as they remain legible.
    const room = this.node.clientHeight - HEADINGS - this._fits.node.clientHeight;
    const share = room / Math.max(this._shown.size, 1) - CHART_HEAD;
    const height = Math.round(Math.min(Math.max(share, LOWEST_CHART), HIGHEST_CHART));
    this._shown.forEach(chart => chart.resize(width, height));
  }

  /** Copy the current history, because the series is a view of a ring buffer. */
  private _copy(): Series {
    const { span, time, memory_used, utilization, temperature, power } =
      this.machine.history.series(this.moduleId);
    return {
      span,
      time: time.slice(),
      memory_used: memory_used.slice(),
      utilization: utilization.slice(),
      temperature: temperature.slice(),
      power: power.slice()
    };
  }

  private readonly _number = element('span', 'hpu-CardCharts-number');
  private readonly _summary = element('span', 'hpu-CardCharts-summary');
  private readonly _heading = element('h2', 'hpu-CardCharts-heading', this._number, this._summary);
  private readonly _empty = element('div', 'hpu-CardCharts-empty');
  private readonly _charts = element('div', 'hpu-CardCharts-charts');
  private readonly _notice: NoticeBox;
  private readonly _fits: Fits;
  private readonly _shown = new Map<Metric, Chart>();
  private _frozen: Series | null = null;
}
