graph [
  directed 1
  node [
    id 0
    label "PKC"
  ]
  node [
    id 1
    label "praf"
  ]
  node [
    id 2
    label "pmek"
  ]
  node [
    id 3
    label "pjnk"
  ]
  node [
    id 4
    label "P38"
  ]
  node [
    id 5
    label "PKA"
  ]
  node [
    id 6
    label "p44/42"
  ]
  node [
    id 7
    label "pakts473"
  ]
  node [
    id 8
    label "plcg"
  ]
  node [
    id 9
    label "PIP2"
  ]
  node [
    id 10
    label "PIP3"
  ]
  edge [
    source 0
    target 1
  ]
  edge [
    source 0
    target 2
  ]
  edge [
    source 0
    target 3
  ]
  edge [
    source 0
    target 4
  ]
  edge [
    source 1
    target 2
  ]
  edge [
    source 2
    target 6
  ]
  edge [
    source 5
    target 1
  ]
  edge [
    source 5
    target 2
  ]
  edge [
    source 5
    target 6
  ]
  edge [
    source 5
    target 3
  ]
  edge [
    source 5
    target 4
  ]
  edge [
    source 5
    target 7
  ]
  edge [
    source 6
    target 7
  ]
  edge [
    source 8
    target 9
  ]
  edge [
    source 8
    target 0
  ]
  edge [
    source 9
    target 0
  ]
  edge [
    source 10
    target 8
  ]
  edge [
    source 10
    target 9
  ]
  edge [
    source 10
    target 7
  ]
]
