import { MainAreaWidget, ToolbarButton } from '@jupyterlab/apputils';
import { undoIcon } from '@jupyterlab/ui-components';

import { pauseIcon } from '../view/icons';
import type { CardCharts } from './cardcharts';
import { trans } from '../model/translation';

/** Put a card's charts into a tab with the buttons that act on them. */
export function cardTab(content: CardCharts): MainAreaWidget<CardCharts> {
  const tab = new MainAreaWidget({ content });
  tab.addClass('hpu-CardTab');
  const pause = new ToolbarButton({
    icon: pauseIcon,
    label: trans.__('Pause'),
    tooltip: trans.__('Let the charts stand still'),
    pressedTooltip: trans.__('Let the charts go on'),
    onClick: () => {
      content.paused = !content.paused;
    }
  });
  const reset = new ToolbarButton({
    icon: undoIcon,
    label: trans.__('Reset zoom'),
    tooltip: trans.__(
      'Show the whole history (double-click or Escape). Drag in a chart, or press + and -, to zoom.'
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
