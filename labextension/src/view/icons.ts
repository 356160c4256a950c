import { LabIcon } from '@jupyterlab/ui-components';

import cardSvg from '../../style/icons/card.svg';
import overviewSvg from '../../style/icons/overview.svg';
import pauseSvg from '../../style/icons/pause.svg';

/** A chip with the four engines of a matrix unit. */
export const cardIcon = new LabIcon({ name: 'hpu_magic:card', svgstr: cardSvg });

/** Rows of bars on one axis. */
export const overviewIcon = new LabIcon({ name: 'hpu_magic:overview', svgstr: overviewSvg });

export const pauseIcon = new LabIcon({ name: 'hpu_magic:pause', svgstr: pauseSvg });
