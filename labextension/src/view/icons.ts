import { LabIcon } from '@jupyterlab/ui-components';

import cardSvg from '../../style/icons/card.svg';
import pauseSvg from '../../style/icons/pause.svg';

/** A chip with the four engines of a matrix unit. */
export const cardIcon = new LabIcon({ name: 'hpu_magic:card', svgstr: cardSvg });

export const pauseIcon = new LabIcon({ name: 'hpu_magic:pause', svgstr: pauseSvg });
