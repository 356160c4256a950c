import { MainAreaWidget, ToolbarButton } from '@jupyterlab/apputils';
import { undoIcon } from '@jupyterlab/ui-components';

import { pauseIcon } from '../view/icons';
import type { CardCharts } from './cardcharts';
import { trans } from '../model/translation';

/** Create a tab with a card's charts and their buttons. */
export function cardTab(content: CardCharts): MainAreaWidget<CardCharts> {
  const tab = new MainAreaWidget({ content });
  tab.addClass('hpu-CardTab');
  const pause = new ToolbarButton({
    icon: pauseIcon,
    label: trans.__('Pause'),
    tooltip: trans.__('Pause the charts'),
    pressedTooltip: trans.__('Resume the charts'),
    onClick: () => {
      content.paused = !content.paused;
    }
  });
  const reset = new ToolbarButton({
    icon: undoIcon,
    label: trans.__('Reset zoom'),
    tooltip: trans.__(
      'Show the entire history (double-click or Escape). Drag in a chart, or press + and -, to zoom.'
    ),
    enabled: false,
    onClick: () => content.resetZoom()
  });
  content.stateChanged.connect(() => {
    pause.pressed = content.paused;
    reset.enabled = content.zoomed;
  });
  tab.toolbar.addItem('pause', pause);
  tab.toolbar.addItem('reset-zoom', reset);
  return tab;
}
